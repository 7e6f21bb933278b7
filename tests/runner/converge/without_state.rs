//! `runner converge` of a layer whose state is lost, in a backend that is not the datastore.

use crate::real_layer::Layer;

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_was_applied_is_not_created_again_after_its_state_was_lost() {
    let layer = Layer::applied().await;
    layer.lose_state();
    let ended = layer.run(&["converge"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    for text in ["there is no state in the backend local", "has applied this layer", "--new-state"]
    {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
    assert!(!layer.sandbox.work().join("module/terraform.tfstate").exists());
    let ended = layer.run(&["check"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(layer.status().await["status"], "absent");
    let ended = layer.run(&["converge", "--new-state"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(layer.resources(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_was_destroyed_is_created_again_without_its_state() {
    let layer = Layer::applied().await;
    let ended = layer.run(&["destroy", "--auto-approve"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    layer.lose_state();
    let ended = layer.run(&["converge"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(layer.resources(), 2);
}

impl Layer {
    fn lose_state(&self) {
        let module = self.sandbox.work().join("module");
        for name in ["terraform.tfstate", "terraform.tfstate.backup"] {
            std::fs::remove_file(module.join(name)).unwrap_or_default();
        }
    }
}
