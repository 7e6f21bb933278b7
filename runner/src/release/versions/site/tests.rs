use secrecy::SecretString;

use crate::cli::MirrorVariables;
use crate::release::versions::layout::ListFormat;
use crate::release::versions::site::*;

fn args(words: &[&str]) -> ToolArgs {
    #[derive(clap::Parser)]
    struct Parsed {
        #[command(flatten)]
        args: ToolArgs,
    }
    let words = std::iter::once("runner").chain(words.iter().copied());
    <Parsed as clap::Parser>::parse_from(words).args
}

/// tenv's variables of one tool, given without their prefix.
fn variables(prefix: &'static str, set: &[(&str, &str)]) -> MirrorVariables {
    let text = |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, text)| *text);
    let secret = |name| text(name).map(SecretString::from);
    MirrorVariables {
        prefix,
        remote: secret("REMOTE"),
        list_url: secret("LIST_URL"),
        list_mode: text("LIST_MODE").map(str::to_owned),
        install_mode: text("INSTALL_MODE").map(str::to_owned),
        url_template: secret("URL_TEMPLATE"),
        ..MirrorVariables::default()
    }
}

fn site(tool: ToolName, words: &[&str], set: &[(&str, &str)]) -> Site {
    let mut tenv = Tenv { arch: Some("amd64".to_owned()), ..Tenv::default() };
    match tool {
        ToolName::Terraform => tenv.terraform = variables("TFENV_", set),
        ToolName::Tofu => tenv.tofu = variables("TOFUENV_", set),
        ToolName::Terragrunt => tenv.terragrunt = variables("TG_", set),
    }
    Site { platform: "linux_amd64".to_owned(), ..Site::new(tool, &args(words), &tenv).unwrap() }
}

fn official(tool: ToolName, version: &str) -> Vec<String> {
    let files = site(tool, &[], &[]).files(&version.parse().unwrap());
    let archives = files.archives.into_iter().map(|archive| archive.url);
    archives.chain([files.sums_url]).chain(files.signature_urls).collect()
}

#[test]
fn every_url_is_built_from_the_version() {
    let hashicorp = "https://releases.hashicorp.com/terraform";
    assert_eq!(
        official(ToolName::Terraform, "1.9.8"),
        [
            "1.9.8/terraform_1.9.8_linux_amd64.zip",
            "1.9.8/terraform_1.9.8_SHA256SUMS",
            "1.9.8/terraform_1.9.8_SHA256SUMS.sig",
            "1.9.8/terraform_1.9.8_SHA256SUMS.72D7468F.sig",
        ]
        .map(|end| format!("{hashicorp}/{end}"))
    );
    for odd in ["0.12.0-alpha3", "0.12.0-alpha4"] {
        let archive = format!("{hashicorp}/{odd}/terraform_{odd}_terraform_{odd}_linux_amd64.zip");
        assert_eq!(official(ToolName::Terraform, odd)[0], archive);
    }
    let opentofu = "https://github.com/opentofu/opentofu/releases/download/v1.12.6";
    assert_eq!(
        official(ToolName::Tofu, "1.12.6"),
        ["linux_amd64.zip", "SHA256SUMS", "SHA256SUMS.gpgsig"]
            .map(|end| format!("{opentofu}/tofu_1.12.6_{end}"))
    );
    let terragrunt = "https://github.com/gruntwork-io/terragrunt/releases/download";
    let expected = |tag: &str, names: &[&str]| {
        names.iter().map(|name| format!("{terragrunt}/{tag}/{name}")).collect::<Vec<_>>()
    };
    let (zip, bare) = ("terragrunt_linux_amd64.zip", "terragrunt_linux_amd64");
    let sums = ["SHA256SUMS", "SHA256SUMS.gpgsig"];
    assert_eq!(
        official(ToolName::Terragrunt, "0.93.6"),
        expected("v0.93.6", &[zip, bare, sums[0], sums[1]])
    );
    assert_eq!(
        official(ToolName::Terragrunt, "0.93.5"),
        expected("v0.93.5", &[bare, sums[0], sums[1]])
    );
    assert_eq!(
        official(ToolName::Terragrunt, "alpha-2025031901"),
        expected("alpha-2025031901", &[zip, bare, sums[0], sums[1]])
    );
}

#[test]
#[ignore = "needs ../shared/data"]
fn urls_are_those_of_published_files() {
    let lists_of = support::shared_data("versions").unwrap();
    let published = std::fs::read_to_string(lists_of.join("asset_sha256.json")).unwrap();
    let mut seen = 0;
    for (tool, lists) in [
        (ToolName::Terraform, "terraform"),
        (ToolName::Tofu, "opentofu"),
        (ToolName::Terragrunt, "terragrunt"),
    ] {
        let list = lists_of.join(format!("{lists}_releases.txt"));
        for version in std::fs::read_to_string(list).unwrap().split_whitespace() {
            let files = site(tool, &[], &[]).files(&version.parse().unwrap());
            // Of each version at least one of our addresses is known, or none of its own is.
            let known = files.archives.iter().any(|archive| published.contains(&archive.url));
            let directory = files.sums_url.rsplit_once('/').unwrap().0;
            let any = published.contains(&format!("{directory}/"))
                && published.contains(&format!("{directory}/{tool}_"))
                && published
                    .split('"')
                    .any(|url| url.starts_with(directory) && url.contains("linux_amd64"));
            assert!(known || !any, "{directory}");
            seen += usize::from(known);
        }
    }
    assert!(seen > 100, "{seen}");
}

#[test]
fn signed_versions_are_known() {
    for (tool, version, signed) in [
        (ToolName::Terraform, "0.1.0", true),
        (ToolName::Tofu, "1.6.0-rc1", false),
        (ToolName::Tofu, "1.6.0", true),
        (ToolName::Tofu, "1.7.0-alpha1", true),
        (ToolName::Terragrunt, "0.97.2", false),
        (ToolName::Terragrunt, "0.98.0", true),
        (ToolName::Terragrunt, "1.0.0", true),
        (ToolName::Terragrunt, "alpha-2026021301", false),
    ] {
        assert_eq!(is_signed(tool, &version.parse().unwrap()), signed, "{tool} {version}");
    }
    let sums =
        |version: &str| site(ToolName::Terragrunt, &[], &[]).has_sums(&version.parse().unwrap());
    assert!(!sums("0.18.0") && sums("0.18.1") && sums("alpha-2026021301"));
}

#[test]
fn flags_and_variables_decide_where_lists_are() {
    use ListFormat::{Api, GitHub, Html, Index};
    use ToolName::{Terraform, Terragrunt, Tofu};
    let api = "https://api.github.com/repos/gruntwork-io/terragrunt/releases";
    let house = "https://git.house/api/v3/repos/gruntwork-io/terragrunt/releases";
    for (tool, words, set, expected) in [
        (
            Terraform,
            &[][..],
            &[][..],
            vec![("https://releases.hashicorp.com/terraform/index.json", Index)],
        ),
        (
            Terraform,
            &[],
            &[("REMOTE", "http://m/x/")],
            vec![("http://m/x/terraform/index.json", Index), ("http://m/x/terraform/", Html)],
        ),
        (
            Terraform,
            &["--releases-url", "http://flag"],
            &[("REMOTE", "http://m"), ("LIST_MODE", "html")],
            vec![("http://flag/terraform/", Html)],
        ),
        (
            Terraform,
            &[],
            &[("LIST_URL", "http://m/index.json")],
            vec![("http://m/index.json", Index)],
        ),
        (Tofu, &[], &[], vec![("https://get.opentofu.org/tofu/api.json", Api)]),
        (
            Tofu,
            &[],
            &[("LIST_MODE", "api")],
            vec![("https://api.github.com/repos/opentofu/opentofu/releases", GitHub)],
        ),
        (
            Tofu,
            &["--tofu-url", "file:///m/tofu/"],
            &[],
            vec![("file:///m/tofu/api.json", Api), ("file:///m/tofu/", Html)],
        ),
        (Terragrunt, &[], &[], vec![(api, GitHub)]),
        (Terragrunt, &[], &[("REMOTE", house)], vec![(house, GitHub)]),
        (
            Terragrunt,
            &[],
            &[("REMOTE", "http://m")],
            vec![
                ("http://m/api.json", Api),
                ("http://m/gruntwork-io/terragrunt/releases/download/", Html),
            ],
        ),
    ] {
        let site = site(tool, words, set);
        let lists: Vec<_> =
            site.lists.iter().map(|list| (list.url.as_str(), list.format)).collect();
        assert_eq!(lists, expected, "{tool} {words:?} {set:?}");
    }
}

#[test]
fn files_of_terragrunt_follow_its_remote() {
    let api = "https://api.github.com/repos/gruntwork-io/terragrunt/releases";
    let house = "https://git.house/api/v3/repos/gruntwork-io/terragrunt/releases";
    let file = |set: &[(&str, &str)]| {
        site(ToolName::Terragrunt, &[], set).files(&"1.0.0".parse().unwrap()).sums_url
    };
    let download = "gruntwork-io/terragrunt/releases/download/v1.0.0/SHA256SUMS";
    assert_eq!(file(&[("REMOTE", house)]), format!("https://git.house/{download}"));
    assert_eq!(file(&[("REMOTE", api)]), format!("https://github.com/{download}"));
    assert_eq!(file(&[("LIST_URL", "http://m")]), format!("https://github.com/{download}"));
}
