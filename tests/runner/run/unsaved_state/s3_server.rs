//! A bucket with one key ID that may write, and others that may only read.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The bucket.
#[derive(Clone, Default)]
pub(super) struct S3Server(Arc<Mutex<Option<Vec<u8>>>>);

const LISTING: &str = "<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated><KeyCount>0</KeyCount></ListBucketResult>";

fn error(code: &str) -> Vec<u8> {
    format!("<Error><Code>{code}</Code><Message>The provided token has expired.</Message></Error>")
        .into_bytes()
}

impl S3Server {
    /// Starts it. Returns the configuration of the backend as well.
    pub(super) fn start(writer: &'static str) -> (Self, String) {
        let (server, listener) = (Self::default(), TcpListener::bind("127.0.0.1:0").unwrap());
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let ours = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // A client that leaves is no error.
                let _answered = ours.answer(stream, writer);
            }
        });
        let flags = [
            "skip_credentials_validation",
            "skip_metadata_api_check",
            "skip_region_validation",
            "skip_requesting_account_id",
            "skip_s3_checksum",
            "use_path_style",
        ];
        let flags = flags.map(|flag| format!("    {flag} = true\n")).concat();
        let backend = format!(
            "terraform {{\n  backend \"s3\" {{\n    bucket = \"b\"\n    key = \"state\"\n    region = \"us-east-1\"\n    \
             max_retries = 1\n    endpoints = {{ s3 = \"{endpoint}\" }}\n{flags}  }}\n}}\n"
        );
        (server, backend)
    }

    pub(super) fn state(&self) -> Option<Vec<u8>> {
        self.0.lock().unwrap().clone()
    }

    fn answer(&self, mut stream: TcpStream, writer: &str) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let (mut request, mut len, mut may_write) = (String::new(), 0, false);
        reader.read_line(&mut request)?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let (name, value) = line.split_once(':').unwrap_or_default();
            match &*name.to_ascii_lowercase() {
                "content-length" => len = value.trim().parse().unwrap(),
                "authorization" => may_write = value.contains(&format!("Credential={writer}/")),
                _ => {}
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; len];
        reader.read_exact(&mut body)?;
        let mut state = self.0.lock().unwrap();
        let (status, body) = match request.split(' ').next().unwrap_or_default() {
            "GET" if request.contains("list-type") => (200, LISTING.as_bytes().to_vec()),
            "GET" => state.clone().map_or_else(|| (404, error("NoSuchKey")), |state| (200, state)),
            "HEAD" => (if state.is_some() { 200 } else { 404 }, Vec::new()),
            "PUT" if may_write => {
                *state = Some(body);
                (200, Vec::new())
            }
            _ => (403, error("ExpiredToken")),
        };
        let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n", body.len());
        stream.write_all(&[head.as_bytes(), b"Connection: close\r\n\r\n", &body].concat())
    }
}
