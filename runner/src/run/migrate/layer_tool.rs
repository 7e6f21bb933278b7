//! The tool that works with the states of a layer: another one is refused, and an older version of it. A state itself does
//! not show which tool has written it.

use std::cmp::Ordering;

use datastore_api::state::{LayerTool, ToolRecord};
use datastore_api::{RunKey, chain};
use reqwest::StatusCode;

use crate::release::Installed;
use crate::run::Run;
use crate::run::error::{LayerToolError, RunError};
use crate::run::migrate::error::MigrationError;
use crate::version::Version;

impl Run<'_> {
    /// Refuses another tool than the one that is recorded for the layer, and an older version of it.
    pub(in crate::run) async fn check_layer_tool(
        &mut self,
        installed: &Installed,
    ) -> Result<(), RunError> {
        if self.job.action.migrates() {
            return Ok(());
        }
        self.read_layer_tool().await?;
        if let Some(migration) = self.recorded_migration().filter(|migration| migration.unfinished)
        {
            let migration = Box::new(migration.clone());
            return Err(MigrationError::Unfinished { key: self.own_state_key(), migration }.into());
        }
        let Some(ToolRecord { tool: theirs, .. }) = &self.layer_tool else { return Ok(()) };
        let RunKey { namespace, layer, .. } = &self.job.run;
        let (layer, shown) = (format!("{namespace}/{layer}"), theirs.to_string());
        let ours = format!("{} {}", installed.tool, installed.version);
        if theirs.name != installed.tool.program() {
            return Err(LayerToolError::Other { layer, theirs: shown, ours }.into());
        }
        if compared(&installed.version, theirs) == Some(Ordering::Less) {
            return Err(LayerToolError::Older { layer, theirs: shown, ours }.into());
        }
        Ok(())
    }

    /// The same under the lease: a migration may have ended since, whether this run has waited for it or not.
    pub(in crate::run) async fn check_layer_tool_again(
        &mut self,
        installed: &Installed,
    ) -> Result<(), RunError> {
        if self.lease.held().is_none() {
            return Ok(());
        }
        self.check_layer_tool(installed).await
    }

    /// Reads which tool is recorded for the layer.
    pub(super) async fn read_layer_tool(&mut self) -> Result<(), RunError> {
        self.layer_tool = self.recorded_layer_tool().await?;
        Ok(())
    }

    /// The tool that is recorded for the layer. A token need not have the right to read it.
    async fn recorded_layer_tool(&self) -> Result<Option<ToolRecord>, RunError> {
        let Some(client) = &self.job.datastore else { return Ok(None) };
        let RunKey { namespace, layer, .. } = &self.job.run;
        let found = self.signals.or(client.layer_tool(namespace, layer)).await;
        match found.map_err(RunError::Stopped)? {
            Err(error) if error.status() == Some(StatusCode::FORBIDDEN) => {
                tracing::warn!(
                    "it is not known whether the states of this layer belong to another tool: {}",
                    chain(&error)
                );
                Ok(None)
            }
            found => Ok(found?),
        }
    }

    /// Records a later version of the layer's tool, which has written the state now.
    pub(in crate::run) async fn raise_layer_tool(&self, installed: &Installed) {
        let (Some(record), Some(client)) = (&self.layer_tool, &self.job.datastore) else { return };
        let ToolRecord { tool: theirs, migrations } = record;
        if compared(&installed.version, theirs) != Some(Ordering::Greater) {
            return;
        }
        let RunKey { namespace, layer, .. } = &self.job.run;
        let ours = LayerTool { version: installed.version.to_string(), ..theirs.clone() };
        let record = ToolRecord { tool: ours.clone(), migrations: migrations.clone() };
        let put = client.put_layer_tool(namespace, layer, &record);
        match self.signals.within(self.upload_grace(), put).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(
                    "{ours} is not recorded as the tool of the layer: {}",
                    chain(&error)
                );
            }
            Err(_) => tracing::warn!("{ours} is not recorded as the tool of the layer"),
        }
    }
}

/// How a version compares with that of the layer's tool. `None`: that cannot be read.
pub(super) fn compared(ours: &Version, theirs: &LayerTool) -> Option<Ordering> {
    Some(ours.compare(&theirs.version.parse::<Version>().ok()?))
}

/// A tool, as a datastore records it.
pub(in crate::run) fn layer_tool(Installed { tool, version, .. }: &Installed) -> LayerTool {
    LayerTool { name: tool.to_string(), version: version.to_string() }
}
