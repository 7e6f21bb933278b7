use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use proptest::prelude::*;

use super::*;
use crate::process::redact::values::secret;

const PEM: &str = "-----BEGIN PRIVATE KEY-----\n\
    MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n\
    MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictGeurT8jNbvJZHtCSuYEvu\n\
    NMoSfm76\n\
    -----END PRIVATE KEY-----\n";

fn redaction(values: &[&str]) -> Redaction {
    let redaction = Redaction::default();
    redaction.add(values.iter().map(|value| secret("X", value.as_bytes())));
    redaction
}

fn in_pieces<'a>(redaction: &Redaction, pieces: impl Iterator<Item = &'a [u8]>) -> String {
    let (mut stream, mut out) = (redaction.stream(), Vec::new());
    pieces.for_each(|piece| stream.push(piece, &mut out));
    stream.finish(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_secret_is_masked_at_every_split_of_the_stream() {
    let redaction = redaction(&["hunter2-hunter2", "hunter2-hunter2-longer", "zz-hunter2-h", PEM]);
    let text = format!(
        "a=hunter2-hunter2 hunter2-hunter2-longer\nhunter2-hunter-hunter2-hunter2-long zz-hunter2-hunter2!\n{PEM}hunter2-hunte"
    );
    let whole = redaction.text(&text);
    assert_eq!(
        whole,
        "a=*** ***\nhunter2-hunter-***-long ***!\n-----BEGIN PRIVATE KEY-----\n***\n***\n***\n\
         -----END PRIVATE KEY-----\nhunter2-hunte"
    );
    let bytes = text.as_bytes();
    for split in 0..=bytes.len() {
        let (first, second) = bytes.split_at(split);
        assert_eq!(in_pieces(&redaction, [first, second].into_iter()), whole, "at {split}");
    }
    for size in [1, 2, 3, 7, 8, 9, 64] {
        assert_eq!(in_pieces(&redaction, bytes.chunks(size)), whole, "in pieces of {size}");
    }
}

#[test]
fn every_form_of_a_secret_is_masked() {
    let value = "p/s+w<rd&\"\\ é${x}%{y}>=~'!";
    let redaction = redaction(&[value]);
    let html = "p/s+w\\u003crd\\u0026\\\"\\\\ é${x}%{y}\\u003e=~'!";
    let ascii = "p/s+w<rd&\\\"\\\\ \\u00e9${x}%{y}>=~'!";
    let twice = serde_json::to_string(&serde_json::to_string(value).unwrap()).unwrap();
    for form in [
        value,
        serde_json::to_string(value).unwrap().trim_matches('"'),
        // The quotes of the inner document are no part of the secret.
        twice.strip_prefix("\"\\\"").unwrap().strip_suffix("\\\"\"").unwrap(),
        html,
        ascii,
        &html.replace('\\', "\\\\").replace('"', "\\\""),
        &html.replace('\\', &"\\".repeat(4)).replace('"', "\\\\\\\""),
        "p\\/s+w<rd&\\\"\\\\ é${x}%{y}>=~'!",
        "p/s+w<rd&\\\"\\\\ é$${x}%%{y}>=~'!",
        "p/s+w<rd&\"\\ é$${x}%%{y}>=~'!",
        "p%2Fs%2Bw%3Crd%26%22%5C%20%C3%A9%24%7Bx%7D%25%7By%7D%3E%3D~%27%21",
        "p%2fs%2bw%3crd%26%22%5c%20%c3%a9%24%7bx%7d%25%7by%7d%3e%3d~%27%21",
        "p%2Fs%2Bw%3Crd%26%22%5C+%C3%A9%24%7Bx%7D%25%7By%7D%3E%3D~%27%21",
        "p/s%2Bw%3Crd%26%22%5C%20%C3%A9%24%7Bx%7D%25%7By%7D%3E%3D~%27%21",
        "p%2Fs%2Bw%3Crd%26%22%5C%20%C3%A9%24%7Bx%7D%25%7By%7D%3E%3D~'!",
    ] {
        assert_eq!(redaction.text(&format!("<{form}>")), "<***>", "{form}");
    }
}

#[test]
fn base64_is_masked_at_every_alignment() {
    let value = "\u{7fff}hunter2-hunter2?>";
    let redaction = redaction(&[value]);
    for before in 0..7 {
        for after in 0..4 {
            let text = format!("{}{value}{}", "x".repeat(before), "y".repeat(after));
            let standard = STANDARD.encode(&text);
            let in_url = standard.replace('+', "%2B").replace('/', "%2F");
            for encoded in [standard, in_url, URL_SAFE.encode(&text)] {
                let masked = redaction.text(&encoded).replace("%2B", "+").replace("%2F", "/");
                // Up to one character on each side has bits of the text around the secret.
                let rest = masked.replace("***", "");
                assert!(masked.contains("***"), "{before} {after}: {masked}");
                let around = (before * 8).div_ceil(6) + (after * 8).div_ceil(6) + 4;
                assert!(rest.len() <= around, "{before} {after}: {masked}");
            }
        }
    }
}

#[test]
fn base64_is_masked_wherever_a_line_breaks() {
    let value = "hunter2-hunter2-hunter2-hunter2-hunter2";
    let redaction = redaction(&[value]);
    for before in 0..3 {
        let encoded = STANDARD.encode(format!("{}{value}", "x".repeat(before)));
        let known = &encoded[(before * 8).div_ceil(6)..][..50];
        for at in 1..encoded.len() {
            for end in ["\n", "\r\n", "\\n"] {
                let (first, second) = encoded.split_at(at);
                let text = format!("a {first}{end}{second} z");
                let masked = redaction.text(&text);
                // Where a line ends after a few characters, those are not recognized.
                for part in known.as_bytes().windows(9) {
                    let part = str::from_utf8(part).unwrap();
                    assert!(!masked.contains(part), "{before} {at}: {masked}");
                }
                for split in 0..text.len() {
                    let (first, second) = text.as_bytes().split_at(split);
                    let pieces = [first, second].into_iter();
                    assert_eq!(in_pieces(&redaction, pieces), masked, "{before} {at} {split}");
                }
            }
        }
    }
}

#[test]
fn values_of_several_lines_are_masked_line_by_line() {
    let redaction = redaction(&[PEM]);
    let line = "MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictGeurT8jNbvJZHtCSuYEvu";
    assert_eq!(redaction.text(&format!("    + {line}\r\n")), "    + ***\r\n");
    let json = serde_json::to_string(PEM).unwrap();
    assert_eq!(redaction.text(&json), "\"***\\n\"");
    let encoded = STANDARD.encode(PEM);
    let rest = redaction.text(&encoded).replace("***", "");
    assert!(rest.len() <= 4, "{rest}");
    for width in [64, 76] {
        let lines = encoded.as_bytes().chunks(width);
        let lines = lines.map(|line| format!("x: {}", String::from_utf8_lossy(line)));
        let text = lines.collect::<Vec<_>>().join("\n");
        let masked = redaction.text(&text);
        assert!(masked.lines().all(|line| line.len() <= "x: ***=====".len()), "{masked}");
        assert_eq!(masked.lines().count(), text.lines().count(), "{masked}");
    }
}

#[test]
fn a_key_in_one_line_is_masked_with_its_line_breaks_as_well() {
    let one_line = PEM.trim().replace('\n', "\\n");
    for value in [one_line.clone(), format!("{one_line}\\n")] {
        let redaction = redaction(&[&value]);
        let masked = "-----BEGIN PRIVATE KEY-----\n***\n***\n***\n-----END PRIVATE KEY-----\n";
        assert_eq!(redaction.text(PEM), masked);
        let text = redaction.text(&value);
        assert!(!text.contains("MIIE") && !text.contains("NMoS"), "{text}");
    }
}

#[test]
fn short_values_and_other_text_are_not_masked() {
    let redaction = redaction(&["true", "short77", " \n", "", "password"]);
    assert_eq!(redaction.text("true short77 passwor"), "true short77 passwor");
    assert_eq!(redaction.text("the password"), "the ***");
    let text = "Plan: 1 to add";
    assert!(matches!(Redaction::default().bytes(text.as_bytes()), Cow::Borrowed(_)));
}

#[test]
fn a_value_with_short_lines_is_masked_as_a_whole() {
    let redaction = redaction(&["abc\ndef\nghi"]);
    assert_eq!(redaction.text("abc\ndef\nghj"), "abc\ndef\nghj");
    assert_eq!(redaction.text("<abc\ndef\nghi>"), "<***\n***\n***>");
}

#[test]
fn fifty_secrets_and_long_ones_are_masked() {
    let values = (0..50).map(|i| format!("secret-number-{i:02}-{}", "x".repeat(i * 100)));
    let values = values.collect::<Vec<_>>();
    let redaction = redaction(&values.iter().map(String::as_str).collect::<Vec<_>>());
    for value in values.iter().rev() {
        assert_eq!(redaction.text(&format!("[{value}]")), "[***]");
        let masked = redaction.text(&format!("[{}]", STANDARD.encode(value)));
        assert!(masked.len() < 12, "{masked}");
    }
    // A part of a long one.
    assert!(!redaction.text(&values[49]).contains("xxxxxxxx"));
}

#[test]
fn little_is_held_back() {
    let redaction = redaction(&["hunter2-hunter2", &"k".repeat(100_000)]);
    let (mut stream, mut out) = (redaction.stream(), Vec::new());
    for _ in 0..1000 {
        stream.push(b"Enter a value: ", &mut out);
        assert!(out.ends_with(b": "));
    }
    stream.push(b"hunter", &mut out);
    assert!(out.ends_with(b": "));
    stream.push(b" ", &mut out);
    assert!(out.ends_with(b"hunter "));
    for _ in 0..20_000 {
        stream.push(&[b'k'; 40], &mut out);
    }
    assert!(out.len() < 20_000 && stream.held_len() < 3000, "{} {}", out.len(), stream.held_len());
}

#[test]
fn secrets_are_added_while_a_run_lasts() {
    let redaction = redaction(&["first-secret"]);
    let shared = redaction.clone();
    assert_eq!(redaction.text("first-secret second-secret"), "*** second-secret");
    shared.add([secret("X", b"second-secret")]);
    assert_eq!(redaction.text("first-secret second-secret"), "*** ***");
    assert_eq!(format!("{redaction:?}"), "Redaction");
}

#[test]
fn a_file_is_masked_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.log");
    // The masked lines of the last one are longer than the lines.
    let redaction = redaction(&["first-secret", "a\nb\nc\nd\ne"]);
    let text = "a\nb\nc\nd\ne\nfirst-secret, not a secret\n".repeat(20_000);
    for text in [text.as_str(), "first-secret", "nothing", "", "a\nb\nc\nd\ne"] {
        std::fs::write(&path, text).unwrap();
        redaction.mask_in_place(&path).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap() == redaction.text(text));
    }
    redaction.mask_in_place(&dir.path().join("missing")).unwrap_err();
}

/// A file whose contents are not known must not be stored.
#[test]
fn a_file_that_cannot_be_masked_in_place_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.log");
    // It can be opened, but neither read at an offset nor emptied.
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    redaction(&["first-secret"]).mask_in_place(&path).unwrap_err();
    assert!(path.symlink_metadata().is_err());
}

#[test]
fn words_that_everybody_knows_are_masked_only_by_name() {
    let redaction = Redaction::default();
    redaction.add(values::of_value("TOKEN", b"terraform"));
    assert_eq!(redaction.text("terraform"), "terraform");
    redaction.add([secret("TOKEN", b"terraform")]);
    assert_eq!(redaction.text("terraform"), "***");
}

#[test]
fn of_files_with_settings_only_the_secret_ones_are_masked() {
    let dir = tempfile::tempdir().unwrap();
    for (text, masked) in [
        (
            "[profile x]\naws_access_key_id = AKIAEXAMPLE\naws_secret_access_key = hunter2/hunter2\n",
            "[profile x]\naws_access_key_id = AKIAEXAMPLE\naws_secret_access_key = ***\n",
        ),
        (
            "users:\n- user:\n    client-key-data: \"hunter2hunter2\"\n    name: some-name\n",
            "users:\n- user:\n    client-key-data: \"***\"\n    name: some-name\n",
        ),
        (
            "{\"token_uri\": \"https://example.com/token\", \"private_key\": \"hunter2hunter2\"}",
            "{\"token_uri\": \"https://example.com/token\", \"private_key\": \"***\"}",
        ),
        ("{\"type\": \"external_account\"}", "{\"type\": \"external_account\"}"),
        ("hunter2hunter2\n", "***\n"),
        ("hunter2:hunter2=x", "***"),
    ] {
        let path = dir.path().join("file");
        std::fs::write(&path, text).unwrap();
        let redaction = Redaction::default();
        redaction.add_files([path]);
        assert_eq!(redaction.text(text), masked);
    }
}

#[test]
fn a_line_of_json_stays_json() {
    let redaction = redaction(&["nabcdefgh"]);
    let line = b"{\"message\":\"a\\nabcdefgh nabcdefgh\"}\n";
    assert_eq!(redaction.line(line).as_ref(), b"{\"message\":\"a\\nabcdefgh ***\"}\n");
}

proptest! {
    #[test]
    fn no_secret_is_left_however_the_bytes_are_cut(
        secrets in prop::collection::vec("[ab]{8,12}", 1..4),
        text in "[ab\n]{0,200}",
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let redaction = redaction(&secrets.iter().map(String::as_str).collect::<Vec<_>>());
        let masked = redaction.text(&text);
        let mut cuts = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect::<Vec<_>>();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]);
        prop_assert_eq!(&in_pieces(&redaction, pieces), &masked);
        prop_assert!(secrets.iter().all(|secret| !masked.contains(secret.as_str())));
        prop_assert_eq!(masked.lines().count(), text.lines().count());
        // Every byte that is no part of a secret stays.
        let covered = |at: usize| secrets.iter().any(|secret| {
            text.match_indices(secret.as_str()).any(|(start, _)| (start..start + secret.len()).contains(&at))
                || (0..=at).any(|start| text[start..].starts_with(secret.as_str()) && at < start + secret.len())
        });
        let plain = (0..text.len()).filter(|at| !covered(*at)).map(|at| char::from(text.as_bytes()[at]));
        prop_assert_eq!(masked.replace("***", ""), plain.collect::<String>());
    }

    /// Also where four of its bytes, but not all, occur again and again beside it.
    #[test]
    fn a_secret_is_masked_wherever_it_is_in_a_long_text(
        before in "(abcd|xhun|ter2){0,20}[a-g]{0,9}",
        after in "(abcd|unte|er2-){0,20}[a-g]{0,9}",
    ) {
        let redaction = redaction(&["hunter2-hunter2"]);
        let text = format!("{before}hunter2-hunter2{after}");
        prop_assert_eq!(redaction.text(&text), format!("{before}***{after}"));
    }
}
