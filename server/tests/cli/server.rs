//! A web server for tests: answers as told, well or badly, and remembers what it was asked.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What a client asked for.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Path with its query.
    pub(crate) path: String,
    /// Headers, names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
}

impl Request {
    /// First byte of a `Range: bytes=N-` header.
    pub(crate) fn range_start(&self) -> Option<usize> {
        self.headers
            .get("range")?
            .strip_prefix("bytes=")?
            .strip_suffix('-')?
            .parse()
            .ok()
    }
}

/// What the server answers.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    sent: usize,
    stall: Duration,
    says_length: bool,
}

impl Reply {
    /// A whole body with its length.
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let sent = body.len();
        Self {
            status,
            headers: Vec::new(),
            body,
            sent,
            stall: Duration::ZERO,
            says_length: true,
        }
    }

    /// A file, or the part of it that the request's range names, of the version `etag`.
    pub(crate) fn file(request: &Request, data: &[u8], etag: Option<&str>) -> Self {
        let same_version = request
            .headers
            .get("if-range")
            .is_none_or(|wanted| Some(wanted.as_str()) == etag);
        let reply = match request.range_start().filter(|_| same_version) {
            Some(start) if start >= data.len() => Self::new(416, ""),
            Some(start) => {
                let range = format!("bytes {start}-{}/{}", data.len() - 1, data.len());
                Self::new(206, &data[start..]).header("Content-Range", &range)
            }
            None => Self::new(200, data),
        };
        match etag {
            Some(etag) => reply.header("ETag", etag),
            None => reply,
        }
    }

    /// Another address instead of a body.
    pub(crate) fn redirect(to: &str) -> Self {
        Self::new(302, "").header("Location", to)
    }

    /// Adds a header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Closes the connection after `bytes` of the body, whatever length was announced.
    pub(crate) fn cut_after(mut self, bytes: usize) -> Self {
        self.sent = bytes.min(self.body.len());
        self
    }

    /// Keeps the connection open and silent for a while after what is sent.
    pub(crate) fn then_stall(mut self, time: Duration) -> Self {
        self.stall = time;
        self
    }

    /// Does not announce how long the body is.
    pub(crate) fn without_length(mut self) -> Self {
        self.says_length = false;
        self
    }

    fn write(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        let mut head = format!("HTTP/1.1 {} x\r\nConnection: close\r\n", self.status);
        if self.says_length {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes())?;
        stream.write_all(&self.body[..self.sent])?;
        stream.flush()?;
        thread::sleep(self.stall);
        Ok(())
    }
}

/// A server on a free port of this machine. It ends with the test process.
pub(crate) struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Starts a server that answers each request with `answer`.
    pub(crate) fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                thread::spawn(move || {
                    let Some(request) = read_request(&stream) else {
                        return;
                    };
                    log.lock().expect("log").push(request.clone());
                    let _ = answer(&request).write(&mut stream);
                });
            }
        });
        Self { port, seen }
    }

    /// Address of a path on this server.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().expect("log").clone()
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line.ok()?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    Some(Request { path, headers })
}
