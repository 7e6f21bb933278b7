//! What of a panic is safe to show: where it was, without the paths of the machine that built the program, and its message
//! without quoted texts and URLs, which may be secrets.

use std::any::Any;

/// The most characters of a message.
const MAX_MESSAGE: usize = 300;

/// A location without the directories of the build: `crate-version/src/file.rs:1:2` of a dependency, and
/// `library/core/src/file.rs:1:2` of the standard library.
pub fn without_build_path(location: &str) -> &str {
    // `registry/src/<host>/<crate>`, `git/checkouts/<repository>/<commit>`, `rustc/<commit>/library`.
    for (marker, more) in [("/registry/src/", 1), ("/git/checkouts/", 0), ("/rustc/", 1)] {
        if let Some((_, rest)) = location.split_once(marker) {
            return rest.splitn(more + 1, '/').nth(more).unwrap_or(rest);
        }
    }
    let library = location.find("/lib/rustlib/src/rust/library/");
    library.map_or(location, |at| &location[at + "/lib/rustlib/src/rust/".len()..])
}

/// The message of a panic without quoted texts and URLs.
pub fn describe(panic: &(dyn Any + Send)) -> String {
    if let Some(literal) = panic.downcast_ref::<&'static str>() {
        return (*literal).to_owned();
    }
    let Some(text) = panic.downcast_ref::<String>() else { return "unknown".to_owned() };
    let mut shown = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        shown.push(character);
        if character == '"' {
            while let Some(hidden) = characters.next().filter(|hidden| *hidden != '"') {
                if hidden == '\\' {
                    characters.next();
                }
            }
            shown.push_str("...\"");
        }
    }
    let words = shown.split_whitespace();
    let words = words.map(|word| if word.contains("://") { "<URL>" } else { word });
    words.collect::<Vec<_>>().join(" ").chars().take(MAX_MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_location_shows_no_path_of_the_build() {
        for (location, expected) in [
            (
                "/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/object_store-0.14.2/src/a.rs:7:9",
                "object_store-0.14.2/src/a.rs:7:9",
            ),
            ("/home/a/.cargo/git/checkouts/b-12ab/3c4d/src/c.rs:1:2", "b-12ab/3c4d/src/c.rs:1:2"),
            ("/rustc/ab12cd/library/core/src/option.rs:1:2", "library/core/src/option.rs:1:2"),
            (
                "/root/.rustup/toolchains/x/lib/rustlib/src/rust/library/alloc/src/a.rs:1:2",
                "library/alloc/src/a.rs:1:2",
            ),
            ("datastore/src/main.rs:1:2", "datastore/src/main.rs:1:2"),
        ] {
            assert_eq!(without_build_path(location), expected);
        }
    }

    #[test]
    fn a_message_shows_neither_quoted_texts_nor_urls() {
        let of = |work: fn()| describe(&*catch_unwind(work).unwrap_err());
        assert_eq!(of(|| panic!("a \"literal\"")), "a \"literal\"");
        let secret = of(|| {
            let failed = "x".parse::<u8>().map_err(|_| ("hu\"sh\n", 'x'));
            failed.unwrap();
        });
        assert_eq!(secret, "called `Result::unwrap()` on an `Err` value: (\"...\", 'x')");
        let url = of(|| panic!("no {} with {}", "s3://user:hush@host".to_owned(), 7));
        assert_eq!(url, "no <URL> with 7");
        let long = of(|| panic!("{}", "x".repeat(1000)));
        assert_eq!(long.len(), MAX_MESSAGE);
    }
}
