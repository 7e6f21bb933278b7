//! A backend of the type `http` with locks, which refuses requests on demand.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;

use crate::json;

/// The backend.
#[derive(Clone, Default)]
pub(crate) struct StateServer(Arc<Mutex<Contents>>);

type OnFault = Box<dyn FnMut(&mut Contents) + Send>;

/// What it has, and what it refuses.
#[derive(Default)]
pub(crate) struct Contents {
    pub(crate) state: Option<Vec<u8>>,
    /// What the holder of the lock has sent.
    pub(crate) lock: Option<Vec<u8>>,
    /// Whether it lets everyone lock the state, as if the lock of a dead client had expired.
    pub(crate) forgets_locks: bool,
    /// Method and status, and how often.
    pub(crate) faults: Vec<(&'static str, u16, usize)>,
    /// The methods of the requests so far.
    pub(crate) seen: Vec<String>,
    /// Called with every refused request.
    pub(crate) on_fault: Option<OnFault>,
}

impl StateServer {
    /// Starts it. Returns the configuration of the backend, with locks, as well.
    pub(crate) fn start() -> (Self, String) {
        let (server, address) = Self::at_address();
        let backend = format!(
            "terraform {{\n  backend \"http\" {{\n    address = \"{address}\"\n    lock_address = \"{address}\"\n    \
             unlock_address = \"{address}\"\n    retry_max = 0\n  }}\n}}\n"
        );
        (server, backend)
    }

    /// Starts it. Returns its address as well.
    pub(crate) fn at_address() -> (Self, String) {
        let (server, listener) = (Self::default(), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = format!("http://{}/state", listener.local_addr().unwrap());
        let ours = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let ours = ours.clone();
                // A client that leaves is no error.
                std::thread::spawn(move || ours.answer(stream));
            }
        });
        (server, address)
    }

    pub(crate) fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap()
    }

    /// The state as JSON.
    pub(crate) fn state(&self) -> Value {
        json(self.contents().state.as_deref().unwrap())
    }

    /// Refuses requests with this method and status so often.
    pub(crate) fn refuse(&self, method: &'static str, status: u16, times: usize) {
        self.contents().faults.push((method, status, times));
    }

    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let (mut method, mut len) = (String::new(), 0);
        for index in 0.. {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if index == 0 {
                method.extend(line.split(' ').next());
            }
            let line = line.trim().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                len = value.trim().parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; len];
        reader.read_exact(&mut body)?;
        let (status, body) = self.contents().answer(&method, body);
        let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n", body.len());
        stream.write_all(&[head.as_bytes(), b"Connection: close\r\n\r\n", &body].concat())
    }
}

impl Contents {
    fn answer(&mut self, method: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
        self.seen.push(method.to_owned());
        let fault = self.faults.iter_mut().find(|fault| fault.0 == method && fault.2 > 0);
        if let Some(fault) = fault {
            fault.2 -= 1;
            let status = fault.1;
            if let Some(mut on_fault) = self.on_fault.take() {
                on_fault(self);
                self.on_fault = Some(on_fault);
            }
            return (status, Vec::new());
        }
        match (method, &self.lock) {
            ("GET", _) => self.state.clone().map_or((404, Vec::new()), |state| (200, state)),
            ("LOCK", Some(holder)) if !self.forgets_locks => (423, holder.clone()),
            ("LOCK", _) => {
                self.lock = Some(body);
                (200, Vec::new())
            }
            ("UNLOCK", _) => {
                self.lock = None;
                (200, Vec::new())
            }
            ("POST", _) => {
                self.state = Some(body);
                (200, Vec::new())
            }
            _ => (405, Vec::new()),
        }
    }
}
