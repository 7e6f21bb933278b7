//! Writes a program's standard output to a file and checks every write, because tools ignore a full disk.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::time::Duration;

use fs_err::tokio::File;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::ChildStdout;

/// A daemon of the program may hold the pipe open. Once the program has ended, copying stops when the pipe was empty for
/// this time.
const LATE: Duration = Duration::from_secs(2);

/// A program's standard output that is copied to a file.
pub(super) struct Capture {
    pipe: ChildStdout,
    file: File,
    /// The number of pieces read, and whether one of them is being written.
    pieces: Cell<u64>,
    writing: Cell<bool>,
}

impl Capture {
    /// `path` is that of the file.
    pub(super) fn new(pipe: ChildStdout, file: std::fs::File, path: &Path) -> Self {
        let file = File::from_parts(tokio::fs::File::from_std(file), path);
        Self { pipe, file, pieces: Cell::new(0), writing: Cell::new(false) }
    }

    /// Copies while the program runs, and after its end until the pipe is empty. If a write fails, the pipe is closed,
    /// which ends the program.
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
        // An error of the write is only returned here.
        file.flush().await?;
        writing.set(false);
    }
}
