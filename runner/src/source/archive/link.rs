//! Which symbolic links an archive may hold.

use std::path::{Component, Path};

/// Whether a link at `link` can only lead to paths below the root.
///
/// Its target is relative, and goes up at its start only and at most to the root. A link may lead through other links: each
/// of them ends below the root, and from there the rest of the target only goes down. A target such as `a/../b` could
/// leave the root where `a` is a link itself.
pub(crate) fn is_inside(link: &Path, target: &Path) -> bool {
    let mut depth = link.components().count().saturating_sub(1);
    let mut goes_down = false;
    for part in target.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if !goes_down && depth > 0 => depth -= 1,
            Component::Normal(_) => goes_down = true,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    !target.as_os_str().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_may_go_up_to_the_root_and_then_down() {
        for (link, target) in [
            ("a", "b"),
            ("a", "./b/c"),
            ("a/b", "../c"),
            ("a/b/c", "../../d/e"),
            ("a/b", ".."),
            ("a", "."),
        ] {
            assert!(is_inside(Path::new(link), Path::new(target)), "{link} -> {target}");
        }
    }

    #[test]
    fn a_link_that_could_leave_the_root_is_refused() {
        for (link, target) in [
            ("a", ".."),
            ("a", "../b"),
            ("a/b", "../../c"),
            ("a", "/etc/passwd"),
            ("a", "b/../c"),
            ("a/b", "../c/../../d"),
            ("a", ""),
        ] {
            assert!(!is_inside(Path::new(link), Path::new(target)), "{link} -> {target}");
        }
    }
}
