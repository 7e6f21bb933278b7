//! `--preflight=online`: asks the services whose credentials a run uses. Each call takes 2 s at most.

use std::path::Path;

use reqwest::{Client, RequestBuilder};
use url::form_urlencoded::Serializer;

use crate::tool::preflight::findings::Findings;
use crate::tool::preflight::http::{client, send};
use crate::tool::preflight::question::Question;
use crate::tool::preflight::signature::{Keys, Signed};
use crate::tool::preflight::{aws, jwt, vault};

/// Asks STS and Vault, at the same time, where the configuration uses them.
pub(crate) async fn ask(question: &Question<'_>, ca_file: Option<&Path>, findings: &mut Findings) {
    let (of_aws, of_vault) =
        tokio::join!(ask_sts(question, ca_file), vault::ask(question, ca_file));
    for more in [of_aws, of_vault] {
        findings.refused.extend(more.refused);
        findings.warnings.extend(more.warnings);
        findings.expiries.extend(more.expiries);
    }
}

/// Asks STS whether it accepts the keys or the web identity in the variables.
async fn ask_sts(question: &Question<'_>, ca_file: Option<&Path>) -> Findings {
    let mut findings = Findings::default();
    let users = aws::users(question);
    let user = users.iter().find(|user| {
        !user.has_any(&["endpoints", "endpoint", "sts_endpoint", "sts_region"])
            && !user.is_computed("region")
            && aws::uses_variables(user)
    });
    let Some(user) = user else { return findings };
    let Some((what, request)) = sts_request(question, user.literal("region")) else {
        return findings;
    };
    let sent = async {
        let request = request(&client(&ca_file.into_iter().collect::<Vec<_>>())?)?;
        send(request).await
    };
    match sent.await {
        Ok((status, _)) if status.is_success() => {}
        Ok((status, body)) => {
            let code = element(&body, "Code").unwrap_or("no code");
            let text = format!("STS refuses {what}: {code} ({status}; {} uses it)", user.name);
            // A proxy in between sends no code of STS.
            let is_refused =
                status.is_client_error() && element(&body, "Code").is_some_and(is_auth);
            // Without its validation the provider may never use them: its endpoints may be of another service.
            let is_validated = !user.has_any(&["skip_credentials_validation"]);
            let is_certain = user.is_started && is_validated && is_refused;
            findings.add(is_certain, text, "provide fresh credentials");
        }
        Err(reason) => {
            findings.warnings.push(format!("STS could not be asked about {what}: {reason}"));
        }
    }
    findings
}

/// Whether this code of STS says that the credentials are wrong.
fn is_auth(code: &str) -> bool {
    const CODES: [&str; 10] = [
        "AccessDenied",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "InvalidIdentityToken",
        "IDPRejectedClaim",
        "MissingAuthenticationToken",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
        "AuthFailure",
    ];
    CODES.contains(&code)
}

/// The text of an XML element.
fn element<'a>(body: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(text.trim()).filter(|text| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '.'))
}

type MakeRequest = Box<dyn Fn(&Client) -> Result<RequestBuilder, String> + Send>;

/// What is asked about, and the request. `None`: neither keys nor a web identity are in the variables, or it is not known which
/// STS the provider asks.
fn sts_request(question: &Question<'_>, region: Option<&str>) -> Option<(String, MakeRequest)> {
    let variables = ["AWS_REGION", "AWS_DEFAULT_REGION"];
    let region = region.or_else(|| variables.iter().find_map(|name| question.variable(name)));
    let url = endpoint(question, region)?;
    let region = region.unwrap_or("us-east-1").to_owned();
    let version = ("Version", "2011-06-15");
    if aws::has_keys(question) {
        let keys = Keys {
            id: question.variable("AWS_ACCESS_KEY_ID")?.into(),
            secret: question.variable("AWS_SECRET_ACCESS_KEY")?.to_owned().into(),
            session: question.variable("AWS_SESSION_TOKEN").map(|token| token.to_owned().into()),
        };
        let body = Serializer::new(String::new())
            .append_pair("Action", "GetCallerIdentity")
            .append_pair(version.0, version.1)
            .finish();
        let now = question.now;
        let make = move |client: &Client| {
            let signed = Signed { url: &url, body: &body, region: &region, service: "sts", now };
            signed.request(client, &keys)
        };
        return Some((
            "the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY".to_owned(),
            Box::new(make),
        ));
    }
    let file = question.variable("AWS_WEB_IDENTITY_TOKEN_FILE")?;
    let token = jwt::read(&question.file(file)).ok()?;
    let session = question.variable("AWS_ROLE_SESSION_NAME").unwrap_or("plancha-preflight");
    let body = Serializer::new(String::new())
        .append_pair("Action", "AssumeRoleWithWebIdentity")
        .append_pair(version.0, version.1)
        .append_pair("RoleArn", question.variable("AWS_ROLE_ARN")?)
        .append_pair("RoleSessionName", session)
        .append_pair("WebIdentityToken", token.trim())
        .finish();
    let make = move |client: &Client| {
        let request = client.post(&url).header("content-type", "application/x-www-form-urlencoded");
        Ok(request.body(body.clone()))
    };
    Some((format!("the token in {file} (AWS_WEB_IDENTITY_TOKEN_FILE)"), Box::new(make)))
}

/// The URL of STS. `None`: a file of profiles may name the region, and each partition of AWS has an STS of its own.
fn endpoint(question: &Question<'_>, region: Option<&str>) -> Option<String> {
    const NAMES: [&str; 3] = ["AWS_ENDPOINT_URL_STS", "AWS_STS_ENDPOINT", "AWS_ENDPOINT_URL"];
    let url = match (NAMES.iter().find_map(|name| question.variable(name)), region) {
        (Some(url), _) => url.to_owned(),
        (None, Some(region)) if region.starts_with("cn-") => {
            format!("https://sts.{region}.amazonaws.com.cn")
        }
        (None, Some(region)) => format!("https://sts.{region}.amazonaws.com"),
        (None, None) => return None,
    };
    Some(format!("{}/", url.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::tool::preflight::{Configuration, credentials};

    /// The keys may be those of another partition of AWS, whose STS knows them.
    #[test]
    fn sts_is_not_asked_without_a_region() {
        let credentials = |names: &[&str]| {
            credentials(|name| names.contains(&name).then(|| "https://h".to_owned().into()))
        };
        let keys = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
        for (more, region, is_asked) in [
            (None, None, false),
            (None, Some("us-gov-west-1"), true),
            (Some("AWS_REGION"), None, true),
            (Some("AWS_ENDPOINT_URL_STS"), None, true),
        ] {
            let question = Question {
                configuration: &Configuration::default(),
                variables: &credentials(&keys.into_iter().chain(more).collect::<Vec<_>>()),
                home: None,
                dir: Path::new("/"),
                now: Timestamp::now(),
                is_targeted: false,
                has_backend_arguments: false,
            };
            assert_eq!(sts_request(&question, region).is_some(), is_asked, "{more:?} {region:?}");
        }
    }

    #[test]
    fn only_codes_of_sts_say_that_credentials_are_wrong() {
        let body = "<ErrorResponse><Error><Code>ExpiredToken</Code></Error></ErrorResponse>";
        assert_eq!(element(body, "Code"), Some("ExpiredToken"));
        assert!(is_auth("ExpiredToken") && !is_auth("Throttling"));
        for body in ["<html>403</html>", "<Code><b></Code>", "<Code>x"] {
            assert_eq!(element(body, "Code"), None, "{body}");
        }
    }
}
