//! Downloads one file over HTTP: goes on where an earlier run stopped, tries again when the line
//! breaks, and checks what came.

use std::io::{ErrorKind, Read};
use std::path::Path;

use ureq::http::{StatusCode, header};

use super::cache::Cache;
use super::error::PullError;
use super::http::{Answer, Client, Request, is_passing, status_error};
use super::part::{Expected, Finished, Origin, PartFile};
use super::progress::{Progress, Ui};

/// How one connection ended.
enum Stream {
    /// The server closed after the last byte.
    Complete,
    /// It ended early; the reason.
    Broken(String),
}

/// Downloads `request` to `dest`.
pub(crate) fn fetch(
    client: &Client,
    cache: &Cache,
    ui: &Ui,
    request: &Request,
    expected: &Expected,
    dest: &Path,
) -> Result<Finished, PullError> {
    let url = request.url.to_string();
    let mut part = PartFile::open(dest, &url)?;
    let mut expected = expected.clone();
    let mut progress: Option<Progress> = None;
    let mut failures = 0;
    loop {
        let before = part.len();
        let why = match connect(client, request, &mut part, &mut expected) {
            Ok(Some((answer, total))) => {
                let missing = total.map_or(0, |total| total.saturating_sub(part.len()));
                cache.check_space(missing)?;
                let progress = progress.get_or_insert_with(|| {
                    ui.progress("downloading", label(dest), total, part.len())
                });
                match copy(answer, &mut part, total, progress)? {
                    Stream::Complete => break,
                    Stream::Broken(why) => why,
                }
            }
            Ok(None) => break,
            // Nothing came yet, and nobody there: the caller may know another source.
            Err(error @ PullError::Unreachable { .. }) if progress.is_none() => return Err(error),
            Err(PullError::Unreachable { why, .. }) => why,
            Err(PullError::Status { status, hint, .. })
                if StatusCode::from_u16(status).is_ok_and(is_passing)
                    && failures + 1 < client.limits.attempts =>
            {
                hint.unwrap_or_else(|| format!("status {status}"))
            }
            Err(error) => return Err(error),
        };
        failures = if part.len() > before { 1 } else { failures + 1 };
        if failures >= client.limits.attempts {
            return Err(PullError::BrokenOff {
                url,
                have: part.len(),
                why,
            });
        }
        let pause = client.limits.pause * 2u32.pow(failures - 1);
        ui.note(&format!(
            "{why}; trying again in {:.1} s",
            pause.as_secs_f32()
        ));
        std::thread::sleep(pause);
    }
    if let Some(progress) = progress {
        progress.finish();
    }
    part.finish(&url, &expected)
}

fn label(dest: &Path) -> String {
    dest.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Asks for the bytes the part lacks. Returns the answer and the full length of the file, or
/// nothing if the part turns out to be whole.
fn connect(
    client: &Client,
    request: &Request,
    part: &mut PartFile,
    expected: &mut Expected,
) -> Result<Option<(Answer, Option<u64>)>, PullError> {
    let mut headers = vec![(header::ACCEPT_ENCODING, "identity".to_owned())];
    if let Some(etag) = resumable(part, expected)? {
        headers.push((header::RANGE, format!("bytes={}-", part.len())));
        headers.extend(etag.map(|etag| (header::IF_RANGE, etag)));
    }
    let answer = client.get(request, &headers)?;
    let url = || request.url.to_string();
    let total = match answer.status {
        StatusCode::OK => {
            if part.len() > 0 {
                part.restart()?;
            }
            answer.content_length()
        }
        StatusCode::PARTIAL_CONTENT => match answer.content_range() {
            Some((start, total)) if start == part.len() => total,
            _ => {
                let why = "a range that was not asked for".to_owned();
                return Err(PullError::BadAnswer { url: url(), why });
            }
        },
        StatusCode::RANGE_NOT_SATISFIABLE => {
            let total = part.origin().and_then(|origin| origin.total);
            if total == Some(part.len()) {
                return Ok(None);
            }
            if part.len() == 0 {
                return Err(status_error(request, answer.status));
            }
            part.restart()?;
            return connect(client, request, part, expected);
        }
        status => return Err(status_error(request, status)),
    };
    check_offer(&answer, total, &url(), expected)?;
    part.set_origin(Origin {
        url: url(),
        etag: answer.strong_etag(),
        total,
    })?;
    Ok(Some((answer, total)))
}

/// Whether to ask for the rest only, and on what condition. A part that nothing can vouch for is
/// emptied: neither the server names the version, nor is there a checksum for the whole.
fn resumable(
    part: &mut PartFile,
    expected: &Expected,
) -> Result<Option<Option<String>>, PullError> {
    if part.len() == 0 {
        return Ok(None);
    }
    let etag = part.origin().and_then(|origin| origin.etag.clone());
    if etag.is_none() && expected.sha256.is_none() {
        part.restart()?;
        return Ok(None);
    }
    Ok(Some(etag))
}

/// Refuses, before the download, a file that cannot be the one wanted; learns what the hub says
/// about it where the caller knew nothing.
fn check_offer(
    answer: &Answer,
    total: Option<u64>,
    url: &str,
    expected: &mut Expected,
) -> Result<(), PullError> {
    if let (Some(wanted), Some(found)) = (expected.bytes, total)
        && wanted != found
    {
        return Err(PullError::WrongLength {
            what: url.to_owned(),
            wanted,
            found,
        });
    }
    match (&expected.sha256, &answer.linked_sha256) {
        (Some(wanted), Some(offered)) if wanted != offered => Err(PullError::Checksum {
            what: url.to_owned(),
            expected: wanted.clone(),
            actual: offered.clone(),
        }),
        (None, Some(offered)) => {
            expected.sha256 = Some(offered.clone());
            Ok(())
        }
        _ => Ok(()),
    }
}

fn copy(
    answer: Answer,
    part: &mut PartFile,
    total: Option<u64>,
    progress: &Progress,
) -> Result<Stream, PullError> {
    let mut reader = answer.into_reader();
    let mut buffer = vec![0; 1 << 18];
    progress.set_position(part.len());
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => {
                return Ok(match total {
                    Some(total) if part.len() < total => {
                        Stream::Broken("the server stopped before the end".to_owned())
                    }
                    _ => Stream::Complete,
                });
            }
            Ok(n) => {
                part.write(&buffer[..n])?;
                progress.set_position(part.len());
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Ok(Stream::Broken(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    use url::Url;

    use super::*;
    use crate::pull::http::Limits;

    /// A server that falls silent after half of the file, and sends the rest to whoever asks.
    fn dozing_server(data: &'static [u8]) -> Url {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut head = [0; 4096];
                    let n = stream.read(&mut head).unwrap_or(0);
                    let head = String::from_utf8_lossy(&head[..n]).to_ascii_lowercase();
                    let half = data.len() / 2;
                    let wants_rest = head.contains(&format!("range: bytes={half}-"));
                    let (status, from, to) = if wants_rest {
                        (206, half, data.len())
                    } else {
                        (200, 0, half)
                    };
                    let answer = format!(
                        "HTTP/1.1 {status} x\r\nETag: \"e\"\r\nContent-Length: {}\r\n\
                         Content-Range: bytes {from}-{}/{}\r\n\r\n",
                        data.len() - from,
                        data.len() - 1,
                        data.len()
                    );
                    let _ = stream.write_all(answer.as_bytes());
                    let _ = stream.write_all(&data[from..to]);
                    thread::sleep(Duration::from_secs(60));
                });
            }
        });
        Url::parse(&format!("http://127.0.0.1:{port}/m.gguf")).expect("url")
    }

    #[test]
    fn a_silent_server_is_asked_again() {
        let limits = Limits {
            read: Duration::from_millis(200),
            pause: Duration::from_millis(1),
            ..Limits::default()
        };
        let home = tempfile::tempdir().expect("temp dir");
        let cache = Cache::at(home.path());
        let data: &[u8] = b"0123456789";
        let request = Request {
            url: dozing_server(data),
            token: None,
        };
        let dest = cache.models().join("m.gguf");
        let expected = Expected {
            bytes: Some(10),
            sha256: None,
        };
        let client = Client::new(limits);
        let finished = fetch(&client, &cache, &Ui::new(), &request, &expected, &dest);
        assert_eq!(finished.expect("fetched").bytes, 10);
        assert_eq!(std::fs::read(dest).expect("read"), data);
    }
}
