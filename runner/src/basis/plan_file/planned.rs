//! The planned values in a plan file. Unlike the JSON of `show`, it records how a text begins whose end is not known yet.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use fs_err as fs;
use serde_json::Value;
use zip::ZipArchive;

use crate::basis::plan_file::msgpack;
use crate::basis::plan_file::protobuf::{self, each, find};

/// The changes of resources and of outputs in a plan, with the fields of their names and of the change.
const KINDS: [Kind; 2] = [
    Kind { field: 3, name: 13, change: 9, prefix: "" },
    Kind { field: 4, name: 1, change: 2, prefix: "output." },
];
/// What is done, and the values before and after it, in a change.
const ACTION: u64 = 1;
const VALUES: u64 = 2;
/// The action that reads a data source.
const READ: u64 = 2;
/// The one field of a value: `MessagePack`.
const MSGPACK: u64 = 1;
/// No resource has more bytes.
const MAX_CHANGE: u64 = 256 << 20;

struct Kind {
    field: u64,
    name: u64,
    change: u64,
    prefix: &'static str,
}

/// Passes on the planned values of resources and outputs, each with its name: `ADDRESS` or `output.NAME`. An unknown
/// text is the part of it that is known. Nothing is passed on of a file of another format, such as one that tofu has encrypted.
pub(crate) fn each_value(plan: &Path, mut pass: impl FnMut(&str, &Value)) -> io::Result<()> {
    let Ok(mut archive) = ZipArchive::new(fs::File::open(plan)?) else { return Ok(()) };
    let Ok(tfplan) = archive.by_name("tfplan") else { return Ok(()) };
    let fields = KINDS.map(|kind| kind.field);
    each(tfplan, &fields, MAX_CHANGE, |field, value| {
        let kind = KINDS.iter().find(|kind| kind.field == field);
        if let (Some(kind), protobuf::Value::Bytes(bytes)) = (kind, value)
            && let Some((name, value)) = planned(kind, &bytes)?
        {
            pass(&name, &value);
        }
        Ok(ControlFlow::Continue(()))
    })
}

/// The name and the planned value of one resource or output, unless it is only read.
fn planned(kind: &Kind, bytes: &[u8]) -> io::Result<Option<(String, Value)>> {
    let Some(change) = find_any(bytes, kind.change)? else { return Ok(None) };
    let (mut is_read, mut last) = (false, None);
    each(&*change, &[ACTION, VALUES], MAX_CHANGE, |_, value| {
        match value {
            protobuf::Value::Number(action) => is_read = action == READ,
            protobuf::Value::Bytes(value) => last = Some(value),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let Some(value) = last.filter(|_| !is_read) else { return Ok(None) };
    let Some(value) = find_any(&value, MSGPACK)? else { return Ok(None) };
    let value = msgpack::value(&value).ok_or(io::ErrorKind::InvalidData)?;
    let name = find(bytes, kind.name)?.unwrap_or_default();
    Ok(Some((format!("{}{}", kind.prefix, String::from_utf8_lossy(&name)), value)))
}

/// The bytes of the first field with this number, however many they are.
fn find_any(message: &[u8], field: u64) -> io::Result<Option<Vec<u8>>> {
    let mut found = None;
    each(message, &[field], MAX_CHANGE, |_, value| {
        if let protobuf::Value::Bytes(bytes) = value {
            found = Some(bytes);
        }
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}
