//! The HTTP client: redirects followed by hand (the hub tells length and checksum on the way),
//! short time limits, and failures told apart.

use std::io::Read;
use std::time::Duration;

use ureq::http::{HeaderMap, Response, StatusCode, header};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};
use url::Url;

use super::error::PullError;

/// Time limits. A download as a whole has none.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// For reaching the server, name look-up and TLS included.
    pub connect: Duration,
    /// For the next bytes to arrive.
    pub read: Duration,
    /// Failures in a row, without a byte of progress, before giving up.
    pub attempts: u32,
    /// Pause after the first failure; doubles with each further one.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(4),
            read: Duration::from_secs(30),
            attempts: 5,
            pause: Duration::from_millis(250),
        }
    }
}

const MAX_REDIRECTS: usize = 8;

/// A client for all requests of one run.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    agent: Agent,
    /// The limits in force.
    pub limits: Limits,
}

/// What to ask a server for.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Address.
    pub url: Url,
    /// Secret for the server named in `url`; never sent to another one.
    pub token: Option<String>,
}

/// A server's answer, after redirects.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Status of the last answer.
    pub status: StatusCode,
    /// Headers of the last answer.
    pub headers: HeaderMap,
    /// SHA-256 of the whole file, where the hub tells it.
    pub linked_sha256: Option<String>,
    body: Body,
}

impl Client {
    pub(super) fn new(limits: Limits) -> Self {
        let agent = Agent::config_builder()
            .timeout_resolve(Some(limits.connect))
            .timeout_connect(Some(limits.connect))
            .timeout_recv_response(Some(limits.read))
            .timeout_per_read(Some(limits.read))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("kvant/", env!("CARGO_PKG_VERSION")))
            // The certificates the rest of the user's machine trusts, company proxies included.
            .tls_config(
                TlsConfig::builder()
                    .root_certs(RootCerts::PlatformVerifier)
                    .build(),
            )
            .build()
            .new_agent();
        Self { agent, limits }
    }

    /// Sends a GET with extra headers and follows redirects.
    pub(super) fn get(
        &self,
        request: &Request,
        headers: &[(header::HeaderName, String)],
    ) -> Result<Answer, PullError> {
        let mut url = request.url.clone();
        let mut linked_sha256 = None;
        for _ in 0..=MAX_REDIRECTS {
            let mut call = self.agent.get(url.as_str());
            for (name, value) in headers {
                call = call.header(name, value);
            }
            if let Some(token) = request
                .token
                .as_ref()
                .filter(|_| same_site(&url, &request.url))
            {
                call = call.header(header::AUTHORIZATION, format!("Bearer {token}"));
            }
            let response = call.call().map_err(|error| failure(&url, error))?;
            if same_site(&url, &request.url) {
                linked_sha256 = linked_sha256.or_else(|| linked_checksum(response.headers()));
            }
            match redirect(&url, &response)? {
                Some(next) => url = next,
                None => {
                    let (parts, body) = response.into_parts();
                    let (status, headers) = (parts.status, parts.headers);
                    return Ok(Answer {
                        status,
                        headers,
                        linked_sha256,
                        body,
                    });
                }
            }
        }
        let why = format!("more than {MAX_REDIRECTS} redirects");
        Err(PullError::BadAnswer {
            url: request.url.to_string(),
            why,
        })
    }

    /// Fetches a small text, such as the answer of an API.
    pub(super) fn get_text(&self, request: &Request, max_bytes: u64) -> Result<String, PullError> {
        let answer = self.get(request, &[])?;
        if answer.status != StatusCode::OK {
            return Err(status_error(request, answer.status));
        }
        let mut text = String::new();
        let mut reader = answer.into_reader().take(max_bytes.saturating_add(1));
        let url = || request.url.to_string();
        match reader.read_to_string(&mut text) {
            Ok(_) if text.len() as u64 <= max_bytes => Ok(text),
            Ok(_) => {
                let why = format!("more than {max_bytes} bytes");
                Err(PullError::BadAnswer { url: url(), why })
            }
            Err(error) => Err(PullError::BadAnswer {
                url: url(),
                why: error.to_string(),
            }),
        }
    }
}

impl Answer {
    /// The body as it arrives.
    pub(super) fn into_reader(self) -> impl Read {
        self.body.into_with_config().limit(u64::MAX).reader()
    }

    /// `Content-Length` of this answer.
    pub(super) fn content_length(&self) -> Option<u64> {
        self.text(header::CONTENT_LENGTH)?.parse().ok()
    }

    /// First byte and full length of a 206 answer (`Content-Range: bytes 5-9/10`).
    pub(super) fn content_range(&self) -> Option<(u64, Option<u64>)> {
        let range = self.text(header::CONTENT_RANGE)?.strip_prefix("bytes ")?;
        let (span, total) = range.split_once('/')?;
        let start = span.split_once('-')?.0.trim().parse().ok()?;
        Some((start, total.trim().parse().ok()))
    }

    /// The version of the file, if the server vouches for every byte of it.
    pub(super) fn strong_etag(&self) -> Option<String> {
        let etag = self.text(header::ETAG)?;
        etag.starts_with('"').then(|| etag.to_owned())
    }

    fn text(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// The error for a status that is no success.
pub(crate) fn status_error(request: &Request, status: StatusCode) -> PullError {
    let hint = match status.as_u16() {
        401 | 403 if request.token.is_some() => {
            Some("the token in HF_TOKEN may not read it; accept the model's terms on its page")
        }
        401 | 403 => Some("it needs a login; set HF_TOKEN to a token that may read it"),
        404 => Some("there is no such file; check the spelling"),
        429 => Some("too many requests; wait a little and run the same command again"),
        500.. => Some("the server has trouble; try again later"),
        _ => None,
    };
    PullError::Status {
        url: request.url.to_string(),
        status: status.as_u16(),
        hint: hint.map(str::to_owned),
    }
}

/// Whether another try may succeed where this status came back.
pub(crate) fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

fn same_site(a: &Url, b: &Url) -> bool {
    a.origin() == b.origin()
}

fn redirect(from: &Url, response: &Response<Body>) -> Result<Option<Url>, PullError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let bad = |why: String| PullError::BadAnswer {
        url: from.to_string(),
        why,
    };
    let location = response
        .headers()
        .get(header::LOCATION)
        .and_then(|value| value.to_str().ok())
        .ok_or_else(|| bad("a redirect without an address".to_owned()))?;
    let next = from
        .join(location)
        .map_err(|error| bad(format!("redirect: {error}")))?;
    if from.scheme() == "https" && next.scheme() != "https" {
        return Err(bad(
            "a redirect from https to an unprotected address".to_owned()
        ));
    }
    Ok(Some(next))
}

/// The hub's `X-Linked-Etag` of a large file is its SHA-256; of a small one it is something else.
fn linked_checksum(headers: &HeaderMap) -> Option<String> {
    let value = headers
        .get("x-linked-etag")?
        .to_str()
        .ok()?
        .trim_matches('"');
    let is_sha256 = value.len() == 64 && value.bytes().all(|b| b.is_ascii_hexdigit());
    is_sha256.then(|| value.to_ascii_lowercase())
}

fn failure(url: &Url, error: ureq::Error) -> PullError {
    let host = url.host_str().unwrap_or("the server").to_owned();
    let why = match error {
        ureq::Error::HostNotFound => "no such host, or no network".to_owned(),
        ureq::Error::ConnectionFailed => "the connection was refused".to_owned(),
        ureq::Error::Io(error) => error.to_string(),
        ureq::Error::Timeout(limit) => format!("no answer in time ({limit})"),
        other => other.to_string(),
    };
    PullError::Unreachable { host, why }
}
