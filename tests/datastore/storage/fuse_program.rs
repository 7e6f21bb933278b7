//! A file system that answers everything except the end of a read: the program behind a mount of `hanging_fuse_mount.rs`.
//!
//! It speaks as much of the protocol of FUSE (`linux/fuse.h`) as these tests need. Every file named `pretty.plan` has
//! [`SIZE`] bytes; every other name is a directory. A read at [`HANGS_AT`] or later, and the closing of a file, are never
//! answered.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;

pub(super) const SIZE: u64 = 2 << 20;
pub(super) const HANGS_AT: u64 = 1 << 20;
/// Set if this program is to serve the mount whose device is its standard input.
pub(super) const VARIABLE: &str = "PLANCHA_TEST_FUSE";

const ROOT: u64 = 1;
const IN_HEADER: usize = 40;

#[test]
#[expect(clippy::disallowed_methods, reason = "it is another program then")]
#[ignore = "is a program for other tests"]
fn fuse_program() {
    assert!(std::env::var_os(VARIABLE).is_some(), "only `hanging_fuse_mount.rs` runs this");
    let mut device = File::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let mut nodes = Nodes::default();
    let mut request = vec![0; 1 << 20];
    // Each read returns one request, and fails once it is unmounted.
    while let Ok(length) = device.read(&mut request) {
        let Some(answer) = nodes.answer(&request[..length]) else { continue };
        // The caller may have given up.
        let _written = device.write(&answer);
    }
}

/// The names that were looked up.
#[derive(Default)]
struct Nodes {
    by_name: HashMap<(u64, Vec<u8>), u64>,
    files: Vec<u64>,
}

impl Nodes {
    /// The answer to a request, if it gets one.
    fn answer(&mut self, request: &[u8]) -> Option<Vec<u8>> {
        let (opcode, unique, node) = (u32_at(request, 4), u64_at(request, 8), u64_at(request, 16));
        let body = &request[IN_HEADER..];
        let answer = match opcode {
            1 => Ok(self.lookup(node, body)),
            3 => Ok([words(&[3600, 0]), self.attributes(node)].concat()),
            14 => Ok(words(&[0, 1])), // Open: every read comes here.
            15 if u64_at(body, 8) >= HANGS_AT => return None,
            15 => Ok(vec![b'x'; u32_at(body, 16) as usize]),
            25 => return None,          // Flush: a file is closed.
            2 | 36 | 42 => return None, // They expect no answer.
            18 | 29 => Ok(Vec::new()),
            26 => Ok(init()),
            27 => Ok(words(&[0, 0])),
            28 => Ok(Vec::new()), // An empty directory.
            _ => Err(-38_i32),    // ENOSYS
        };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(error) => (error, Vec::new()),
        };
        let length = u32::try_from(16 + body.len()).unwrap();
        let header = [length.to_ne_bytes(), error.to_ne_bytes()].concat();
        Some([header, unique.to_ne_bytes().to_vec(), body].concat())
    }

    fn lookup(&mut self, parent: u64, name: &[u8]) -> Vec<u8> {
        let new = ROOT + 1 + self.by_name.len() as u64;
        let node = *self.by_name.entry((parent, name.to_vec())).or_insert(new);
        if node == new && name.starts_with(b"pretty.plan\0") {
            self.files.push(node);
        }
        [words(&[node, 0, 3600, 3600, 0]), self.attributes(node)].concat()
    }

    /// The inode, size and mode; the times are 0, and so is the owner.
    fn attributes(&self, node: u64) -> Vec<u8> {
        let (size, mode) =
            if self.files.contains(&node) { (SIZE, 0o10_0644) } else { (0, 0o4_0755) };
        let numbers = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0_u32];
        let numbers = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<_>>();
        [words(&[node, size, size / 512, 0, 0, 0]), numbers].concat()
    }
}

/// The answer to the first request: version 7.31, no read-ahead by the kernel.
fn init() -> Vec<u8> {
    let numbers = [7, 31, 0, 0, 0, 1 << 17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0_u32];
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}
