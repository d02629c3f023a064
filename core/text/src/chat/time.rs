//! The time that templates may print. It is passed in: nothing here reads a clock.

/// A local date and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// Year, such as 2026.
    pub year: i32,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, from 1.
    pub day: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 60.
    pub second: u8,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

impl LocalTime {
    /// Formats as C's `strftime` in the C locale does. `Err` is a directive that is not known.
    pub(super) fn strftime(&self, format: &str) -> Result<String, char> {
        let month = MONTHS[usize::from(self.month.clamp(1, 12)) - 1];
        let weekday = DAYS[self.weekday()];
        let hour12 = match self.hour % 12 {
            0 => 12,
            hour => hour,
        };
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut directive = chars.next().ok_or('%')?;
            let unpadded = directive == '-';
            if unpadded {
                directive = chars.next().ok_or('-')?;
            }
            let text = match directive {
                'Y' => self.year.to_string(),
                'y' => format!("{:02}", self.year.rem_euclid(100)),
                'm' => format!("{:02}", self.month),
                'd' => format!("{:02}", self.day),
                'e' => format!("{:2}", self.day),
                'H' => format!("{:02}", self.hour),
                'I' => format!("{hour12:02}"),
                'M' => format!("{:02}", self.minute),
                'S' => format!("{:02}", self.second),
                'j' => format!("{:03}", self.day_of_year()),
                'p' => if self.hour < 12 { "AM" } else { "PM" }.into(),
                'B' => month.into(),
                'b' | 'h' => month[..3].into(),
                'A' => weekday.into(),
                'a' => weekday[..3].into(),
                'F' => self.strftime("%Y-%m-%d")?,
                'T' => self.strftime("%H:%M:%S")?,
                'D' => self.strftime("%m/%d/%y")?,
                'R' => self.strftime("%H:%M")?,
                'n' => "\n".into(),
                't' => "\t".into(),
                '%' => "%".into(),
                other => return Err(other),
            };
            out.push_str(match (unpadded, text.trim_start_matches(['0', ' '])) {
                (false, _) => &text,
                (true, "") => "0",
                (true, number) => number,
            });
        }
        Ok(out)
    }

    fn is_leap_year(&self) -> bool {
        self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0)
    }

    /// From 1.
    fn day_of_year(&self) -> u32 {
        const BEFORE: [u32; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let month = self.month.clamp(1, 12);
        let leap = u32::from(month > 2 && self.is_leap_year());
        BEFORE[usize::from(month) - 1] + u32::from(self.day) + leap
    }

    /// 0 is Sunday.
    fn weekday(&self) -> usize {
        let before = i64::from(self.year) - 1;
        let leap_days = before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
        // 1 January of year 1 was a Monday.
        let days = before * 365 + leap_days + i64::from(self.day_of_year());
        days.rem_euclid(7) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_as_c_does() {
        let time = LocalTime {
            year: 2026,
            month: 3,
            day: 5,
            hour: 0,
            minute: 7,
            second: 9,
        };
        let cases = [
            ("%d %b %Y", "05 Mar 2026"),
            ("%B %-d, %Y", "March 5, 2026"),
            ("%A %a %j", "Thursday Thu 064"),
            ("%F %T %I %p %y %%", "2026-03-05 00:07:09 12 AM 26 %"),
        ];
        for (format, want) in cases {
            assert_eq!(time.strftime(format).as_deref(), Ok(want));
        }
        assert_eq!(time.strftime("%Q"), Err('Q'));
        assert_eq!(time.strftime("%"), Err('%'));
        let leap = LocalTime {
            year: 2000,
            month: 12,
            day: 31,
            ..time
        };
        assert_eq!(leap.strftime("%j %a").as_deref(), Ok("366 Sun"));
    }
}
