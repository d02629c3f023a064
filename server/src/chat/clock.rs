//! The time for templates that print it.

use std::time::{SystemTime, UNIX_EPOCH};

use kvant_text::LocalTime;

/// Now, in UTC: the standard library knows no time zones.
pub(super) fn now() -> LocalTime {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    at(since.as_secs())
}

/// The time so many seconds after 1970 began.
fn at(seconds: u64) -> LocalTime {
    let (days, second) = (seconds / 86_400, (seconds % 86_400) as u32);
    // Counted from 1 March of year 0, leap days come last in a year and in 400 years.
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    LocalTime {
        year: year as i32,
        month: month as u8,
        day: day as u8,
        hour: (second / 3600) as u8,
        minute: (second / 60 % 60) as u8,
        second: (second % 60) as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        let shown = |seconds| {
            let t = at(seconds);
            (t.year, t.month, t.day, t.hour, t.minute, t.second)
        };
        assert_eq!(shown(0), (1970, 1, 1, 0, 0, 0));
        assert_eq!(shown(951_782_400), (2000, 2, 29, 0, 0, 0));
        assert_eq!(shown(1_709_251_199), (2024, 2, 29, 23, 59, 59));
        assert_eq!(shown(1_764_547_200), (2025, 12, 1, 0, 0, 0));
        assert_eq!(shown(4_107_542_400), (2100, 3, 1, 0, 0, 0));
    }
}
