//! Whether a configuration uses the name of the workspace, `terraform.workspace`.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use hcl_edit::expr::{Expression, Traversal, TraversalOperator};
use hcl_edit::visit::{self, Visit};
use regex::Regex;

use crate::source::references::calls::without_comments;
use crate::source::references::search::first_file;

/// Text that may use the name.
static NAME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b(terraform|tofu)\s*\.\s*workspace\b").expect("a valid pattern")
});

/// The first file of the module in `root`, and of all modules that init has installed, that uses the name. The tool keeps
/// its data in `data_dir`.
pub(crate) fn names_workspace(root: &Path, data_dir: &Path) -> io::Result<Option<PathBuf>> {
    first_file(root, data_dir, uses)
}

fn uses(file: &Path, text: &str) -> bool {
    if !NAME.is_match(text) {
        return false;
    }
    if file.extension() == Some(OsStr::new("json")) {
        return true;
    }
    let Ok(body) = hcl_edit::parser::parse_body(text) else {
        // The parser rejects some files that the tools accept.
        return NAME.is_match(&without_comments(text));
    };
    let mut search = Search(false);
    search.visit_body(&body);
    search.0
}

struct Search(bool);

impl Visit for Search {
    fn visit_traversal(&mut self, traversal: &Traversal) {
        let of_tool = match &traversal.expr {
            Expression::Variable(name) => matches!(name.as_str(), "terraform" | "tofu"),
            _ => false,
        };
        let first = traversal.operators.first().map(hcl_edit::Decorated::value);
        let is_name =
            matches!(first, Some(TraversalOperator::GetAttr(name)) if name.as_str() == "workspace");
        self.0 |= of_tool && is_name;
        visit::visit_traversal(self, traversal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_found_in_expressions_and_not_in_comments() {
        for (file, text, expected) in [
            ("a.tf", "locals { a = terraform.workspace }", true),
            ("a.tf", "locals { a = \"x-${terraform.workspace}\" }", true),
            ("a.tofu", "locals { a = tofu.workspace }", true),
            ("a.tf", "locals { a = [for x in y : x if terraform . workspace == x] }", true),
            ("a.tf.json", r#"{"locals": {"a": "${terraform.workspace}"}}"#, true),
            // The parser rejects two equal keys.
            ("a.tf", "locals { a = { x = 1, x = terraform.workspace } }", true),
            ("a.tf", "# terraform.workspace\nlocals { a = 1 }", false),
            ("a.tf", "locals { a = 1 /* terraform.workspace */ }", false),
            ("a.tf", "locals { a = var.terraform.workspace }", false),
            ("a.tf", "locals { a = \"terraform.workspace\" }", false),
        ] {
            assert_eq!(uses(Path::new(file), text), expected, "{text}");
        }
    }
}
