//! Downloads that people read. A reader may pause for hours, but a datastore closes a connection that does not move. So
//! the download goes to a temporary file without a name, and is shown from there while it arrives.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use datastore_api::Sha256;
use datastore_api::client::Download;
use datastore_api::digest::Hasher;
use tokio::sync::watch;

use crate::show::error::ShowError;
use crate::show::terminal::painter::Painter;
use crate::show::terminal::screen::Screen;

/// The size of the pieces that are shown.
const PIECE: usize = 64 << 10;

/// A text of the datastore.
#[derive(Debug)]
pub(in crate::show) enum Text {
    /// It is shown while it arrives.
    Arriving(Box<Download>),
    /// It was downloaded to a temporary file without a name.
    Whole(File),
}

/// Downloads a text, and returns its digest. It can be compared before anything of it is shown.
pub(in crate::show) async fn whole(mut download: Download) -> Result<(Text, Sha256), ShowError> {
    let (file, mut hasher, mut end) = (tempfile::tempfile()?, Hasher::default(), 0);
    while let Some(piece) = download.piece().await? {
        file.write_all_at(&piece, end)?;
        hasher.update(&piece);
        end += piece.len() as u64;
    }
    Ok((Text::Whole(file), hasher.finish()))
}

/// Shows a text. `paint` passes its pieces to the painter, and returns what to write.
pub(in crate::show) async fn show_text(
    text: Text,
    screen: &mut Screen,
    mut paint: impl FnMut(&mut Painter, &[u8]) -> Result<String, ShowError>,
) -> Result<(), ShowError> {
    let mut painter = Painter::new(screen.colours());
    let show = async |piece: &[u8]| {
        let text = paint(&mut painter, piece)?;
        screen.write(&text).await
    };
    let shown = match text {
        Text::Arriving(download) => spool(*download, show).await,
        Text::Whole(file) => read(&file, show).await,
    };
    // The last line has no end if the download breaks off.
    let rest = painter.finish();
    shown.and(screen.write(&rest).await)
}

/// Downloads, and passes the bytes to `show` at the reader's pace. Memory does not grow with the download.
async fn spool(
    mut download: Download,
    mut show: impl AsyncFnMut(&[u8]) -> Result<(), ShowError>,
) -> Result<(), ShowError> {
    let file = &tempfile::tempfile()?;
    let (sender, mut length) = watch::channel(0_u64);
    // Each side drops its end of the channel when it is done.
    let fetch = async move {
        while !sender.is_closed()
            && let Some(piece) = download.piece().await?
        {
            file.write_all_at(&piece, *sender.borrow())?;
            sender.send_modify(|length| *length += piece.len() as u64);
        }
        Ok::<_, ShowError>(())
    };
    let show = async move {
        let (mut position, mut buffer) = (0, vec![0; PIECE]);
        loop {
            let is_last = length.changed().await.is_err();
            let end = *length.borrow_and_update();
            while position < end {
                let count = read_at(file, &mut buffer, position)?;
                position += count as u64;
                show(&buffer[..count]).await?;
            }
            if is_last {
                return Ok(());
            }
        }
    };
    // What has arrived is shown, also if the rest does not come.
    let (fetched, shown) = tokio::join!(fetch, show);
    shown.and(fetched)
}

/// Passes the bytes of a file to `show`.
async fn read(
    file: &File,
    mut show: impl AsyncFnMut(&[u8]) -> Result<(), ShowError>,
) -> Result<(), ShowError> {
    let (mut position, mut buffer) = (0, vec![0; PIECE]);
    loop {
        match file.read_at(&mut buffer, position)? {
            0 => return Ok(()),
            count => {
                position += count as u64;
                show(&buffer[..count]).await?;
            }
        }
    }
}

fn read_at(file: &std::fs::File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    match file.read_at(buffer, position)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => Ok(count),
    }
}
