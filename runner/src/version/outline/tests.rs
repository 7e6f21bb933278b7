use proptest::prelude::*;

use crate::version::outline::Outline;

const NAMES: [&str; 5] = ["terraform", "required_version", "module", "source", "a"];

/// Each attribute as `line path name=value`.
fn shown(text: &str) -> Vec<String> {
    let outline = Outline::read(text, &NAMES);
    let attributes = outline.attributes.iter().map(|attribute| {
        let path = outline.path(attribute).into_iter().map(|block| match block.label {
            Some(label) => format!("{}[{label}].", block.kind),
            None => format!("{}.", block.kind),
        });
        let path: String = path.collect();
        format!("{} {path}{}={}", attribute.line, attribute.name, attribute.value)
    });
    attributes.collect()
}

#[test]
fn attributes_are_found_with_their_blocks_and_lines() {
    let text = r#"
terraform { required_version = "~> 1.5" } # c
/* terraform { required_version = "9" } */
module "m" /* x */ {
  source /* y */ = /* z */ "./m" // end
  b = { source = "9" }
  deeper {
    source = "9"
  }
}
module ident "second" { source = (
  "./n" ) }
a = 1 == 1
a "quoted" "label\"s" {}
"#;
    let expected = [
        r#"2 terraform.required_version="~> 1.5""#,
        r#"5 module[m].source="./m""#,
        "11 module[ident].source=(\n  \"./n\" )",
        "13 a=1 == 1",
    ];
    assert_eq!(shown(text), expected);
}

#[test]
fn templates_and_heredocs_are_skipped_whole() {
    for value in [
        r#""} ${"}"} \" } %{ if true }}%{ endif }""#,
        r#""$${ $$${ %%{ $ % {""#,
        "<<X\n}\n${<<Y\n}\n Y\n}\n X }\nX\"\n  X",
        "<<-X\r\n } \"\r\nX\r",
        "<<X\nX",
        "<<X\n${\"\"}X\n$${ %%{\nX",
        "[1 < 2, 1 /2, \"${\n1\n}\", {\n} # }\n, /* } */ 1]",
        "größe",
    ] {
        let text = format!("module m {{\n  x = {value}\n}}\na = 1");
        let line = text.lines().count();
        assert_eq!(shown(&text), [format!("{line} a=1")], "{value}");
        let text = format!("a = {value}\n");
        assert_eq!(shown(&text), [format!("1 a={}", value.trim_end())], "{value}");
    }
}

#[test]
fn of_a_broken_file_what_can_be_found_is_found() {
    for broken in [
        "x = \"no end",
        "x = 'y'",
        "x y z",
        "= 1",
        ") }",
        "x = 1;",
        "\"label\" {}",
        "x.y = 1",
        "a == 1",
        "a =",
        "a \"x\" = 1",
        "x = <<X y",
    ] {
        let text = format!("{broken}\nmodule m {{\n  a = 1\n}}\n");
        let found = shown(&text);
        assert_eq!(
            found.last().map(String::as_str),
            Some("3 module[m].a=1"),
            "{broken}: {found:?}"
        );
    }
    for text in
        ["/*", "<<", "<<X", "<<X\n", "\"", "\"\\", "a \"\\", "\"$", "\"${", "a=", "a=\"é\\é"]
    {
        shown(text);
    }
}

/// Twice the text takes about twice the time, and depth takes no stack: else this would not end.
#[test]
fn size_and_depth_are_no_problem() {
    for piece in [
        "(",
        "{",
        "a{",
        "module{",
        "\"${",
        "<<X\n${",
        "<<",
        "<<X",
        "$",
        "\"$$",
        "/*",
        "\\",
        "module m {\na=1\n",
        "a=<<X\n",
        "module{}",
        "a=1\n",
        "x \"",
        "X\n",
        "#\n",
    ] {
        shown(&piece.repeat((4 << 20) / piece.len()));
    }
}

/// An expression, as text.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("1".to_owned()),
        Just("null".to_owned()),
        Just("var.x[0].y".to_owned()),
        Just("\"~> 1.5\"".to_owned()),
        Just("\"./m\"".to_owned()),
        Just("<<E\n~> 1.5\n}\nE\n".to_owned()),
        Just("<<-E\n  a ${1} \"\n  E\n".to_owned()),
        "\"[ -!#-Z^-z]{0,8}\"",
        Just(r#""\" \\ \n $${ %%{ $ %""#.to_owned()),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|x| format!("({x})")),
            inner.clone().prop_map(|x| format!("(\n{x}\n)")),
            inner.clone().prop_map(|x| format!("\"${{{x}}}\"")),
            inner
                .clone()
                .prop_map(|x| format!("\"a ${{~ {x} ~}} }} %{{ if true }}{{%{{ endif }}\"")),
            inner.clone().prop_map(|x| format!("f({x}, 1)")),
            inner.clone().prop_map(|x| format!("!{x}")),
            inner.clone().prop_map(|x| format!("[for k, v in {x} : k if v]")),
            inner.clone().prop_map(|x| format!("{{ for k, v in {x} : k => v }}")),
            (inner.clone(), inner.clone()).prop_map(|(x, y)| format!("[{x}, {y}]")),
            (inner.clone(), inner.clone()).prop_map(|(x, y)| format!("{{ a = {x}, \"b\" : {y} }}")),
            (inner.clone(), inner.clone())
                .prop_map(|(x, y)| format!("{{\n source = {x}\n b = {y} # }}\n}}")),
            (inner.clone(), inner.clone()).prop_map(|(x, y)| format!("{x} == {y}")),
            (inner.clone(), inner.clone(), inner).prop_map(|(x, y, z)| format!("{x} ? {y} : {z}")),
        ]
    })
}

/// A body, as text.
fn body() -> impl Strategy<Value = String> {
    let name = || {
        prop_oneof![
            Just("terraform"),
            Just("required_version"),
            Just("module"),
            Just("source"),
            Just("language"),
            Just("compatible_with"),
            Just("opentofu"),
            Just("x-y"),
        ]
    };
    let statement = prop_oneof![
        4 => (name(), expression()).prop_map(|(name, x)| format!("{name} = {x}\n")),
        1 => Just("# } \" ${ <<E\n".to_owned()),
        1 => Just("/* { \" \n */ // }\n".to_owned()),
        1 => Just("\r\n".to_owned()),
    ];
    let block = |name: &str, body: &str| match name {
        "module" => format!("module \"m\" {{\n{body}}}\n"),
        "x-y" => format!("x-y a \"b\" {{\n{body}}}\n"),
        name => format!("{name} {{ # {{\n{body}}}\n"),
    };
    statement.prop_recursive(3, 24, 5, move |inner| {
        let body = prop::collection::vec(inner, 0..5).prop_map(|statements| statements.concat());
        (name(), body.clone(), body)
            .prop_map(move |(name, inside, after)| block(name, &inside) + &after)
    })
}

proptest! {
    /// Where the parser accepts a file, both find the same.
    #[test]
    fn the_parser_finds_the_same(text in body()) {
        if let Ok(parsed) = hcl_edit::parser::parse_body(&text) {
            let outline = crate::version::required::in_outline(&text);
            prop_assert_eq!(outline.sorted(), crate::version::required::in_body(&text, &parsed).sorted());
        }
    }

    #[test]
    fn nothing_panics(text in "(\\PC|[\n\r\t]|\\$\\{|%\\{|<<E\n|E\n|\"|[{}]|a|=){0,60}") {
        shown(&text);
    }
}
