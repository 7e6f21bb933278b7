//! The AWS API and the provider hashicorp/aws, which `scripts/e2e aws` brings.

#![expect(clippy::disallowed_methods, reason = "scripts/e2e sets the variables")]

use support::Sandbox;

use crate::RUNNER;

/// The URL of the API.
pub(crate) fn api() -> String {
    std::env::var("PLANCHA_TEST_AWS_API").unwrap()
}

/// A sandbox in which the provider comes from a directory.
pub(crate) fn sandbox() -> Sandbox {
    let plugins = std::env::var("PLANCHA_TEST_AWS_PLUGINS").unwrap();
    let sandbox = Sandbox::new(RUNNER);
    let mirror = format!(
        "provider_installation {{\n  filesystem_mirror {{\n    path = \"{plugins}\"\n  }}\n}}\n"
    );
    std::fs::write(sandbox.path("terraformrc"), format!("disable_checkpoint = true\n{mirror}"))
        .unwrap();
    sandbox
}

/// The provider, with this address of one service. `settings` stands in the block `terraform`.
pub(crate) fn provider(service: &str, url: &str, settings: &str) -> String {
    format!(
        r#"terraform {{
  required_providers {{
    aws = {{
      source = "hashicorp/aws"
    }}
  }}
{settings}}}
provider "aws" {{
  region                      = "eu-west-3"
  access_key                  = "x"
  secret_key                  = "y"
  skip_credentials_validation = true
  skip_requesting_account_id  = true
  skip_metadata_api_check     = true
  endpoints {{
    {service} = "{url}"
  }}
}}
"#
    )
}

/// A role of this name.
pub(crate) fn role(name: &str, description: &str) -> String {
    format!(
        r#"resource "aws_iam_role" "r" {{
  name        = "{name}"
  description = "{description}"
  assume_role_policy = jsonencode({{
    Version   = "2012-10-17"
    Statement = [{{ Effect = "Allow", Action = "sts:AssumeRole", Principal = {{ Service = "ec2.amazonaws.com" }} }}]
  }})
}}
"#
    )
}
