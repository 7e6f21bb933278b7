//! Lines of the tools' output that say only that something is still waited for.

/// The address that a line waits for, if that is all it says: `ADDRESS: Still creating... [10s elapsed]`. The tools have
/// printed such lines in this form since 0.8; 0.11 has parentheses: `(ID: i-1, 10s elapsed)`. With `-json` the same text is
/// the value of `@message`.
pub(crate) fn waiting(line: &str) -> Option<&str> {
    let (address, rest) = line.split_once(": Still ")?;
    let (verb, rest) = rest.split_once("...")?;
    let is_verb = verb.ends_with("ing") && verb.bytes().all(|byte| byte.is_ascii_lowercase());
    let rest = rest.trim_start();
    let is_end = rest.is_empty()
        || rest.starts_with('"')
        || (rest.starts_with(['[', '(']) && rest.contains("elapsed"));
    let address = address.rsplit_once("\"@message\":\"").map_or(address, |(_, address)| address);
    (is_verb && is_end).then(|| address.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_only_wait() {
        for (line, address) in [
            ("aws_instance.a: Still creating... [10s elapsed]", "aws_instance.a"),
            (
                "module.m[\"a: b\"].x.y[0]: Still modifying... [id=i-1, 1m0s elapsed]",
                "module.m[\"a: b\"].x.y[0]",
            ),
            ("aws_instance.a: Still destroying... (ID: i-0123, 10s elapsed)", "aws_instance.a"),
            ("aws_instance.a: Still creating... (10s elapsed)", "aws_instance.a"),
            (
                "a.b (deposed object 0123abcd): Still destroying... [id=x, 10s elapsed]",
                "a.b (deposed object 0123abcd)",
            ),
            ("data.aws_ami.a: Still reading... [10s elapsed]", "data.aws_ami.a"),
            ("ephemeral.a.b: Still opening... [10s elapsed]", "ephemeral.a.b"),
            ("ephemeral.a.b: Still closing... [10s elapsed]", "ephemeral.a.b"),
            ("a.b: Still creating... [00m10s elapsed]", "a.b"),
            (
                r#"{"@level":"info","@message":"a.b: Still creating... [10s elapsed]","type":"apply_progress"}"#,
                "a.b",
            ),
        ] {
            assert_eq!(waiting(line), Some(address), "{line}");
        }
        for line in [
            "",
            "a.b: Creating...",
            "a.b: Creation complete after 10s [id=x]",
            "a.b: Refreshing state... [id=Still creating]",
            "a.b (local-exec): Still busy...",
            "a.b: Still creating",
            "a.b: Still creating... the second of three",
        ] {
            assert_eq!(waiting(line), None, "{line}");
        }
    }
}
