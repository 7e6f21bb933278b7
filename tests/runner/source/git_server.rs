//! A git server over http with a user and a password: `git http-backend`, behind just enough HTTP.

#![expect(clippy::disallowed_types, reason = "the server runs git's own program")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

pub(crate) const USER: &str = "robot";
pub(crate) const PASSWORD: &str = "hunter2";

/// Serves the repositories below a directory for as long as the tests run.
pub(crate) fn serve(root: &Path) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (address, root) = (listener.local_addr().unwrap(), root.to_owned());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let root = root.clone();
            // A client may close its connection early.
            std::thread::spawn(move || stream.map(|stream| answer(stream, root)));
        }
    });
    address
}

fn answer(stream: TcpStream, root: PathBuf) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        match header.trim().split_once(": ") {
            Some((name, value)) => headers.push((name.to_lowercase(), value.to_owned())),
            None => break,
        }
    }
    let header = |name: &str| {
        let header = headers.iter().find(|(header, _)| header == name);
        header.map(|(_, value)| value.as_str()).unwrap_or_default()
    };
    let mut body = vec![0; header("content-length").parse().unwrap_or_default()];
    reader.read_exact(&mut body)?;
    let mut stream = stream;
    // `/redirect/PORT/PATH` leads to another server.
    if let Some((port, path)) =
        path.strip_prefix("/redirect/").and_then(|target| target.split_once('/'))
    {
        let to = format!("http://127.0.0.1:{port}/{path}?{query}");
        let head = format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n");
        return stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes());
    }
    let expected = format!("Basic {}", BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}")));
    if header("authorization") != expected {
        return stream.write_all(
            b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"git\"\r\nContent-Length: 0\r\n\
              Connection: close\r\n\r\n",
        );
    }
    let mut backend = Command::new("git")
        .arg("http-backend")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_PROTOCOL", header("git-protocol"))
        .env("REQUEST_METHOD", method)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("REMOTE_USER", USER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = backend.stdin.take() {
        stdin.write_all(&body)?;
    }
    let output = backend.wait_with_output()?.stdout;
    let status = if output.starts_with(b"Status: 404") { "404 Not Found" } else { "200 OK" };
    stream.write_all(format!("HTTP/1.1 {status}\r\nConnection: close\r\n").as_bytes())?;
    stream.write_all(&output)
}
