//! The first words of a command line: which names of the program they are, and whether they are Burrito's. What follows
//! them is not known here.

use std::ffi::OsString;
use std::path::Path;

/// The arguments of the program `ours`, and whether they are Burrito's. A container's command may name the program once
/// more, after the image's entry point: `burrito ...` and `<ours> start` are Burrito's, any other `<ours> ...` is not.
pub fn read(mut args: Vec<OsString>, ours: &str) -> (Vec<OsString>, bool) {
    let name = args.first().and_then(|program| Path::new(program).file_name());
    let is_burrito = name.is_some_and(|name| name == "burrito");
    let word = |at: usize| args.get(at).and_then(|word| word.to_str());
    match (word(1), word(2)) {
        _ if is_burrito => {}
        (Some("burrito"), _) => return (args.split_off(1), true),
        (Some(first), Some("start")) if first == ours => {
            args[0] = "burrito".into();
            return (args, true);
        }
        (Some(first), _) if first == ours => return (args.split_off(1), false),
        _ => {}
    }
    (args, is_burrito)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row of the table in `docs/images.md`: the words after the name of an image, whose entry point is `datastore`.
    #[test]
    fn the_first_words_of_a_containers_command_decide_whether_it_is_burritos() {
        let read = |words: &str| {
            let (args, is_burrito) =
                read(words.split(' ').map(OsString::from).collect(), "datastore");
            let args = args.into_iter().map(|word| word.into_string().unwrap());
            (args.collect::<Vec<_>>().join(" "), is_burrito)
        };
        for (words, expected, is_burrito) in [
            ("datastore", "datastore", false),
            ("/bin/datastore serve -v", "/bin/datastore serve -v", false),
            ("datastore start", "datastore start", false),
            ("datastore datastore serve", "datastore serve", false),
            ("datastore datastore", "datastore", false),
            ("datastore datastore start -v", "burrito datastore start -v", true),
            ("datastore burrito datastore start", "burrito datastore start", true),
            ("datastore burrito", "burrito", true),
            ("/bin/burrito datastore start", "/bin/burrito datastore start", true),
            ("burrito version", "burrito version", true),
            ("datastore ls burrito", "datastore ls burrito", false),
        ] {
            assert_eq!(read(words), (expected.to_owned(), is_burrito), "{words}");
        }
        assert_eq!(super::read(Vec::new(), "runner"), (Vec::new(), false));
    }
}
