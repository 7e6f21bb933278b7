//! The tool of a layer: terraform or tofu, as the datastore records it beside the states.

mod layer_tool;
