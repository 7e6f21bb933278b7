//! What a program prints into a file of ours, with every write checked: tools ignore a full disk.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::time::Duration;

use fs_err::tokio::File;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::ChildStdout;

use crate::process::log::private_file;

/// How long the pipe must have been empty, once the program has ended, where a daemon that it left behind holds it
/// open.
const LATE: Duration = Duration::from_secs(2);

/// A program's standard output on its way into a file.
pub(super) struct Capture {
    pipe: ChildStdout,
    file: File,
    /// How many pieces came, and whether one of them is being written.
    pieces: Cell<u64>,
    writing: Cell<bool>,
}

impl Capture {
    pub(super) fn new(pipe: ChildStdout, path: &Path) -> io::Result<Self> {
        let file = tokio::fs::File::from_std(private_file(path)?);
        let file = File::from_parts(file, path);
        Ok(Self { pipe, file, pieces: Cell::new(0), writing: Cell::new(false) })
    }

    /// Copies while the program runs, and after its end until nothing is left. Where a write fails, the pipe is
    /// closed, and that ends the program.
    pub(super) async fn until<T>(self, ended: impl Future<Output = T>) -> (T, io::Result<()>) {
        let Self { mut pipe, mut file, pieces, writing } = self;
        let copy = async {
            let copied = copy(&mut pipe, &mut file, &pieces, &writing).await;
            drop(pipe);
            copied
        };
        let mut copy = std::pin::pin!(copy);
        let mut ended = std::pin::pin!(ended);
        tokio::select! {
            copied = &mut copy => (ended.await, copied),
            ended = &mut ended => {
                loop {
                    let before = pieces.get();
                    match tokio::time::timeout(LATE, &mut copy).await {
                        Ok(copied) => return (ended, copied),
                        Err(_) if pieces.get() == before && !writing.get() => return (ended, Ok(())),
                        Err(_) => {}
                    }
                }
            }
        }
    }
}

async fn copy(
    pipe: &mut ChildStdout,
    file: &mut File,
    pieces: &Cell<u64>,
    writing: &Cell<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = pipe.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        pieces.set(pieces.get() + 1);
        writing.set(true);
        file.write_all(&buffer[..count]).await?;
        // Only this says whether the write has succeeded.
        file.flush().await?;
        writing.set(false);
    }
}
