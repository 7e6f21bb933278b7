//! The names of files that terraform, tofu and terragrunt read by themselves. This module does not open them.

/// The lock file, in the working directory: the providers that init may install. Terragrunt copies it from there and back.
pub(crate) const LOCK_FILE: &str = ".terraform.lock.hcl";

const CODE: [&str; 4] = [".tf", ".tf.json", ".tofu", ".tofu.json"];
const TERRAGRUNT: [&str; 2] = [".hcl", ".hcl.json"];
const VALUES: [&str; 2] = [".tfvars", ".tfvars.json"];
const OWN_VALUES: [&str; 2] = [".auto.tfvars", ".auto.tfvars.json"];

/// Whether a name ends like that of code of terraform or tofu.
pub(crate) fn is_code(name: impl AsRef<[u8]>) -> bool {
    ends_in(name.as_ref(), &CODE)
}

/// Whether a name ends like that of code, or like that of a configuration of terragrunt.
pub(crate) fn is_module(name: impl AsRef<[u8]>) -> bool {
    is_code(&name) || ends_in(name.as_ref(), &TERRAGRUNT)
}

/// Whether a name ends like that of code, of a configuration of terragrunt, or of values of variables.
pub(crate) fn is_input(name: impl AsRef<[u8]>) -> bool {
    is_module(&name) || ends_in(name.as_ref(), &VALUES)
}

/// Whether a tool reads it wherever it is, although nothing names it: not values that `-var-file` must name.
pub(crate) fn is_read(name: impl AsRef<[u8]>) -> bool {
    let name = name.as_ref();
    is_module(name) || is_own_values(name)
}

/// Whether a tool reads values of variables from it, although nothing names it.
pub(crate) fn is_own_values(name: &[u8]) -> bool {
    ends_in(name, &OWN_VALUES)
        || [&b"terraform.tfvars"[..], b"terraform.tfvars.json"].contains(&name)
}

/// Whether the tools pass over a file of this name: a hidden one, or a backup of an editor.
pub(crate) fn is_ignored(name: impl AsRef<[u8]>) -> bool {
    let name = name.as_ref();
    name.starts_with(b".") || name.ends_with(b"~") || name.starts_with(b"#") && name.ends_with(b"#")
}

fn ends_in(name: &[u8], endings: &[&str]) -> bool {
    endings.iter().any(|ending| name.ends_with(ending.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_recognised_by_their_ends() {
        for (name, expected) in [
            ("main.tf", [true; 3]),
            ("a.tofu.json", [true; 3]),
            ("terragrunt.hcl", [false, true, true]),
            ("x.hcl.json", [false, true, true]),
            ("x.auto.tfvars", [false, false, true]),
            ("x.json", [false; 3]),
            ("main.tf~", [false; 3]),
        ] {
            assert_eq!([is_code(name), is_module(name), is_input(name)], expected, "{name}");
            assert_eq!(is_read(name), is_input(name), "{name}");
        }
        for (name, expected) in [
            (".x.tf", true),
            (".#main.tf", true),
            ("main.tf~", true),
            ("#main.tf#", true),
            ("main.tf", false),
        ] {
            assert_eq!(is_ignored(name), expected, "{name}");
        }
        assert!(is_input("prod.tfvars") && !is_read("prod.tfvars"));
        assert!(is_read("terraform.tfvars") && is_read("terraform.tfvars.json"));
    }
}
