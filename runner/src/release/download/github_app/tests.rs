use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use support::{MirrorFault, ReleaseMirror};

use crate::release::download::github_app::*;
use crate::release::download::http::{GitHubAppAuth, Http};
use crate::release::versions::layout::{ListAt, ListFormat};

fn pem(key: &RsaKeyPair) -> String {
    let der: aws_lc_rs::encoding::Pkcs8V1Der<'_> = key.as_der().unwrap();
    let text = BASE64_STANDARD.encode(der.as_ref());
    let lines: Vec<_> =
        text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"))
}

fn app(pem: &str) -> GitHubApp {
    GitHubApp { id: "42".to_owned(), pem: Some(pem.into()), ..GitHubApp::default() }
}

#[test]
fn a_web_token_is_signed_by_the_apps_key_and_valid_for_minutes() {
    let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let pem = pem(&key);
    for pem in
        [pem.clone(), pem.replace('\n', "\\n"), format!("x\n  {}", pem.replace('\n', "\r\n"))]
    {
        let proof = proof(&app(&pem), 1000).unwrap();
        let (signed, signature) = proof.expose_secret().rsplit_once('.').unwrap();
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref());
        public.verify(signed.as_bytes(), &signature).unwrap();
        let claims = BASE64_URL_SAFE_NO_PAD.decode(signed.split_once('.').unwrap().1).unwrap();
        let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!(claims, serde_json::json!({"iat": 940, "exp": 1480, "iss": "42"}));
    }
    for nonsense in ["", "hunter2", "-----BEGIN RSA PRIVATE KEY-----\naHVudGVyMg==\n"] {
        let error = proof(&app(nonsense), 0).unwrap_err().to_string();
        assert_eq!(error, "TENV_GITHUB_APP_PEM: it is not an RSA private key (PEM)");
    }
}

#[tokio::test]
async fn a_github_list_is_requested_with_the_token_of_an_installation() {
    let mirror = ReleaseMirror::start();
    let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let list = "/api/v3/repos/gruntwork-io/terragrunt/releases";
    mirror.put(list, br#"[{"tag_name": "v1.0.0"}]"#.to_vec());
    mirror.put("/api/v3/app/installations", br#"[{"id": 7}, {"id": 8}]"#.to_vec());
    for id in ["7", "9"] {
        let path = format!("/api/v3/app/installations/{id}/access_tokens");
        mirror.put(&path, format!(r#"{{"token": "of {id}", "expires_at": ""}}"#).into_bytes());
    }
    let at = ListAt { url: format!("{}{list}", mirror.address()), format: ListFormat::GitHub };
    let apis = vec![url::Url::parse(mirror.address()).unwrap().origin()];
    // A site that is not configured as a GitHub API receives no token.
    let stranger = GitHubAppAuth { app: app(&pem(&key)), apis: Vec::new() };
    let http = Http::new(None, Vec::new(), Some(stranger));
    crate::release::versions::formats::fetch(&http, &at, None).await.unwrap();
    assert_eq!((mirror.credentials(list), mirror.all_requests()), (None, 1));
    for (installation, token) in [(None, "of 7"), (Some("9".to_owned()), "of 9")] {
        let app = GitHubApp { installation, ..app(&pem(&key)) };
        let http = Http::new(None, Vec::new(), Some(GitHubAppAuth { app, apis: apis.clone() }));
        for _ in 0..2 {
            let asked =
                crate::release::versions::formats::fetch(&http, &at, None).await.unwrap().unwrap();
            assert_eq!(asked.versions, ["1.0.0"]);
            assert_eq!(mirror.credentials(list).unwrap(), format!("Bearer {token}"));
        }
    }
    assert_eq!(mirror.requests("/api/v3/app/installations"), 1);
    assert_eq!(mirror.requests("/api/v3/app/installations/9/access_tokens"), 1, "once a run");
    mirror.fault("/api/v3/app/installations", MirrorFault::Status(401, 9));
    let provable = GitHubAppAuth { app: app(&pem(&key)), apis };
    let http = Http::new(None, Vec::new(), Some(provable));
    let error = crate::release::versions::formats::fetch(&http, &at, None).await.err().unwrap();
    assert!(error.to_string().ends_with("/app/installations answered 401"), "{error}");
    assert!(error.next().contains("TENV_GITHUB_APP_ID"), "{}", error.next());
}
