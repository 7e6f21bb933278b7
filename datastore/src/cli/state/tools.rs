//! `datastore state tools`: which tool each layer has, for people and as metrics.

use std::io::Write;

use datastore_api::state::LayerTool;
use serde_json::{Value, json};

use crate::cli::error::CommandError;
use crate::cli::state::access::Access;
use crate::cli::state::table;
use crate::store::{LayerKey, LayerStates};

const HEADER: &[&str] = &["LAYER", "TOOL", "VERSION", "SOURCE", "UNFINISHED MIGRATIONS"];
const OLD: &str = "terraform";

/// The tool of a layer.
struct Row {
    layer: LayerKey,
    tool: LayerTool,
    /// `record` or `state`: where it is known from.
    source: &'static str,
    /// The workspaces whose migration has not ended.
    unfinished: Vec<String>,
}

/// Lists the tools of all layers for which one is known.
pub(super) async fn list(
    access: &Access,
    (as_metrics, as_json): (bool, bool),
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let (layers, damaged) = access.readable_layers().await?;
    let rows = layers.into_iter().filter_map(|(layer, states)| row(layer, states));
    let rows = rows.collect::<Vec<_>>();
    if as_metrics {
        metrics(&rows, out)?;
    } else if as_json {
        table::print_json(&Value::Array(rows.iter().map(as_value).collect()), out)?;
    } else {
        table::print(HEADER, &rows.iter().map(cells).collect::<Vec<_>>(), out)?;
    }
    damaged.map_or(Ok(()), |error| Err(CommandError::State(error)))
}

fn row(layer: LayerKey, LayerStates { tool, states, .. }: LayerStates) -> Option<Row> {
    if let Some(record) = tool {
        let unfinished =
            record.migrations.into_iter().filter(|(_, migration)| migration.unfinished);
        let unfinished = unfinished.map(|(workspace, _)| workspace).collect();
        return Some(Row { layer, tool: record.tool, source: "record", unfinished });
    }
    let heads = states.into_values().filter_map(|state| state.head.version);
    let newest = heads.min_by(|one, other| one.version.cmp(&other.version))?;
    Some(Row { layer, tool: newest.tool?, source: "state", unfinished: Vec::new() })
}

fn cells(Row { layer, tool, source, unfinished }: &Row) -> Vec<String> {
    let unfinished = if unfinished.is_empty() { "-".to_owned() } else { unfinished.join(", ") };
    let cells = [
        format!("{}/{}", layer.namespace, layer.layer),
        tool.name.clone(),
        tool.version.clone(),
        (*source).to_owned(),
        unfinished,
    ];
    cells.iter().map(|cell| table::clean(cell)).collect()
}

fn as_value(Row { layer, tool, source, unfinished }: &Row) -> Value {
    json!({
        "namespace": layer.namespace.as_ref(),
        "layer": layer.layer.as_ref(),
        "tool": tool.name,
        "version": tool.version,
        "source": source,
        "unfinished_migrations": unfinished,
    })
}

/// The text format of Prometheus, version 0.0.4.
fn metrics(rows: &[Row], out: &mut impl Write) -> Result<(), CommandError> {
    let info = "plancha_layer_tool_info";
    writeln!(
        out,
        "# HELP {info} The tool of a layer: recorded, or of the newest state.\n# TYPE {info} gauge"
    )?;
    for Row { layer: LayerKey { namespace, layer }, tool, source, .. } in rows {
        let (name, version) = (label(&tool.name), label(&tool.version));
        let (namespace, layer) = (label(namespace.as_ref()), label(layer.as_ref()));
        writeln!(
            out,
            "{info}{{namespace={namespace},layer={layer},tool={name},version={version},source=\"{source}\"}} 1"
        )?;
    }
    let need = "plancha_need_migrate_to_tofu";
    writeln!(out, "# HELP {need} Whether terraform is the tool of a layer.\n# TYPE {need} gauge")?;
    for Row { layer: LayerKey { namespace, layer }, tool, .. } in rows {
        let (namespace, layer) = (label(namespace.as_ref()), label(layer.as_ref()));
        let value = u8::from(tool.name == OLD);
        writeln!(out, "{need}{{namespace={namespace},layer={layer}}} {value}")?;
    }
    Ok(())
}

/// The quoted value of a label.
fn label(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{text}\"")
}
