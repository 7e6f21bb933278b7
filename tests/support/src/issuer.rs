//! An issuer of ID tokens (OpenID Connect) on loopback, which can be told to do everything wrong.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeySize, PublicKeyComponents};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use datastore_api::Sha256;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// An issuer on loopback, until it is dropped.
pub struct FakeIssuer {
    url: String,
    known: Arc<Mutex<Known>>,
    _running: DropGuard,
}

/// What it does wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IssuerFault {
    /// Its document names this issuer.
    NamesIssuer(String),
    /// Its document names this address for its keys.
    KeysAt(String),
    /// It answers the request for its keys with a redirect to this address.
    RedirectsKeys(String),
    /// Its document has this many bytes more.
    Large(usize),
    /// It answers this status.
    Status(u16),
    /// It takes requests and never answers.
    Hangs,
    /// It redirects browsers back without naming itself, although its document says that it does.
    IsSilent,
    /// It redirects browsers back with the name of this issuer.
    Pretends(String),
    /// Its ID tokens have these claims in place of the right ones.
    Claims(Value),
}

/// How a token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature {
    /// RS256, by the first key.
    Rs256,
    /// ES256.
    Es256,
    /// `EdDSA`.
    EdDsa,
    /// The algorithm `none`.
    None,
    /// HS256, with the public RSA key as the secret.
    Hs256ByPublicKey,
    /// RS256, by a key that the issuer does not publish, under the id of the first key.
    ForeignKey,
    /// RS256 in the header, and a signature of ES256.
    Confused,
}

struct Known {
    keys: Keys,
    fault: Option<IssuerFault>,
    /// The claims of whoever signs in next, beside those that every token has.
    user: Value,
    /// Sign-ins by their codes; each code is for one use.
    codes: HashMap<String, SignIn>,
    /// How often each path was requested.
    requests: HashMap<&'static str, usize>,
    /// The client secret that it expects.
    secret: Option<String>,
    issued: usize,
}

struct SignIn {
    client: String,
    redirect: String,
    nonce: String,
    challenge: String,
}

struct Keys {
    /// Counts rotations.
    generation: usize,
    rsa: RsaKeyPair,
    foreign: RsaKeyPair,
    ec: EcdsaKeyPair,
    ed: Ed25519KeyPair,
}

type Shared = (String, Arc<Mutex<Known>>);

impl FakeIssuer {
    /// One in whose document the issuer does not name itself to browsers.
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}/issuer", listener.local_addr().unwrap());
        let known = Known {
            keys: Keys::new(1),
            fault: None,
            user: json!({}),
            codes: HashMap::new(),
            requests: HashMap::new(),
            secret: None,
            issued: 0,
        };
        let known = Arc::new(Mutex::new(known));
        let router = Router::new()
            .route("/issuer/.well-known/openid-configuration", get(document))
            .route("/issuer/keys", get(keys))
            .route("/issuer/authorize", get(authorize))
            .route("/issuer/token", post(token))
            .with_state((url.clone(), Arc::clone(&known)));
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(async move {
            axum::serve(listener, router).with_graceful_shutdown(stopped).await.unwrap();
        });
        Self { url, known, _running: stop.drop_guard() }
    }

    /// Its URL, as its tokens have it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// From now on it does this wrong, or nothing.
    pub fn fault(&self, fault: Option<IssuerFault>) {
        self.known().fault = fault;
    }

    /// Sets the claims of whoever signs in next.
    pub fn user(&self, claims: Value) {
        self.known().user = claims;
    }

    /// Expects this secret of clients.
    pub fn expect_secret(&self, secret: &str) {
        self.known().secret = Some(secret.to_owned());
    }

    /// Replaces all keys.
    pub fn rotate(&self) {
        let mut known = self.known();
        known.keys = Keys::new(known.keys.generation + 1);
    }

    /// How often one of its paths was requested: `document`, `keys`, `authorize` or `token`.
    pub fn requests(&self, path: &str) -> usize {
        self.known().requests.get(path).copied().unwrap_or_default()
    }

    /// A token for an audience that expires in an hour, with further claims, or others in place of the right ones; those that
    /// are null are left out.
    pub fn token(&self, audience: &str, claims: &Value) -> String {
        self.signed(Signature::Rs256, audience, claims)
    }

    /// The same, signed in another way.
    pub fn signed(&self, signature: Signature, audience: &str, claims: &Value) -> String {
        self.known().keys.sign(signature, &claims_of(&self.url, audience, claims))
    }

    /// A token with this header, of the group `infra`.
    pub fn with_header(&self, header: &Value, audience: &str) -> String {
        let claims = claims_of(&self.url, audience, &json!({"groups": "infra"}));
        self.known().keys.encode(Signature::Rs256, header, &claims)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap()
    }
}

fn claims_of(url: &str, audience: &str, more: &Value) -> Value {
    let now = jiff::Timestamp::now().as_second();
    let mut claims =
        json!({"iss": url, "aud": audience, "sub": "subject", "iat": now, "exp": now + 3600});
    for (name, value) in more.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}

impl Keys {
    fn new(generation: usize) -> Self {
        let rsa = || {
            let pair = aws_lc_rs::rsa::KeyPair::generate(KeySize::Rsa2048).unwrap();
            RsaKeyPair::from_pkcs8(pair.as_der().unwrap().as_ref()).unwrap()
        };
        let random = SystemRandom::new();
        let ec = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let ec = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, ec.as_ref()).unwrap();
        let ed = Ed25519KeyPair::generate().unwrap();
        Self { generation, rsa: rsa(), foreign: rsa(), ec, ed }
    }

    fn id(&self, kind: &str) -> String {
        format!("{kind}-{}", self.generation)
    }

    fn published(&self) -> Value {
        let text = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let rsa = PublicKeyComponents::<Vec<u8>>::from(self.rsa.public_key());
        // After a byte that says that it is not compressed.
        let (x, y) = self.ec.public_key().as_ref()[1..].split_at(32);
        json!({"keys": [
            {"kty": "unknown", "kid": "unknown"},
            {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.id("rsa"), "n": text(&rsa.n), "e": text(&rsa.e)},
            {"kty": "EC", "crv": "P-256", "kid": self.id("ec"), "x": text(x), "y": text(y)},
            {"kty": "OKP", "crv": "Ed25519", "kid": self.id("ed"), "x": text(self.ed.public_key().as_ref())},
        ]})
    }

    fn sign(&self, signature: Signature, claims: &Value) -> String {
        let (algorithm, kind) = match signature {
            Signature::Rs256 | Signature::ForeignKey | Signature::Confused => ("RS256", "rsa"),
            Signature::Es256 => ("ES256", "ec"),
            Signature::EdDsa => ("EdDSA", "ed"),
            Signature::None => ("none", "rsa"),
            Signature::Hs256ByPublicKey => ("HS256", "rsa"),
        };
        let header = json!({"alg": algorithm, "typ": "JWT", "kid": self.id(kind)});
        self.encode(signature, &header, claims)
    }

    fn encode(&self, signature: Signature, header: &Value, claims: &Value) -> String {
        let text = |json: &Value| BASE64_URL_SAFE_NO_PAD.encode(json.to_string());
        let mut token = format!("{}.{}", text(header), text(claims));
        let signed = self.signature(signature, token.as_bytes());
        write!(token, ".{}", BASE64_URL_SAFE_NO_PAD.encode(signed)).unwrap();
        token
    }

    fn signature(&self, signature: Signature, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        let by = |key: &RsaKeyPair| {
            let mut signed = vec![0; key.public_modulus_len()];
            key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signed).unwrap();
            signed
        };
        match signature {
            Signature::Rs256 => by(&self.rsa),
            Signature::ForeignKey => by(&self.foreign),
            Signature::Es256 | Signature::Confused => {
                self.ec.sign(&random, message).unwrap().as_ref().to_vec()
            }
            Signature::EdDsa => self.ed.sign(message).as_ref().to_vec(),
            Signature::None => Vec::new(),
            Signature::Hs256ByPublicKey => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, self.rsa.public_key().as_ref());
                hmac::sign(&key, message).as_ref().to_vec()
            }
        }
    }
}

/// Counts a request, and does what the present fault is for all of them.
async fn enter(known: &Arc<Mutex<Known>>, path: &'static str) -> Result<(), Response> {
    let fault = {
        let mut known = known.lock().unwrap();
        *known.requests.entry(path).or_default() += 1;
        known.fault.clone()
    };
    match fault {
        Some(IssuerFault::Hangs) => std::future::pending().await,
        Some(IssuerFault::Status(status)) => {
            Err(StatusCode::from_u16(status).unwrap().into_response())
        }
        _ => Ok(()),
    }
}

async fn document(State((url, known)): State<Shared>) -> Result<Response, Response> {
    enter(&known, "document").await?;
    let fault = known.lock().unwrap().fault.clone();
    let mut document = json!({
        "issuer": url,
        "authorization_endpoint": format!("{url}/authorize"),
        "token_endpoint": format!("{url}/token"),
        "jwks_uri": format!("{url}/keys"),
        "response_types_supported": ["code"],
    });
    match fault {
        Some(IssuerFault::NamesIssuer(other)) => document["issuer"] = other.into(),
        Some(IssuerFault::KeysAt(other)) => document["jwks_uri"] = other.into(),
        Some(IssuerFault::Large(bytes)) => document["x"] = "x".repeat(bytes).into(),
        Some(IssuerFault::IsSilent | IssuerFault::Pretends(_)) => {
            document["authorization_response_iss_parameter_supported"] = true.into();
        }
        _ => {}
    }
    Ok(Json(document).into_response())
}

async fn keys(State((_, known)): State<Shared>) -> Result<Response, Response> {
    enter(&known, "keys").await?;
    let known = known.lock().unwrap();
    Ok(match &known.fault {
        Some(IssuerFault::RedirectsKeys(other)) => Redirect::to(other).into_response(),
        _ => Json(known.keys.published()).into_response(),
    })
}

/// Signs the user in without asking, and sends the browser back.
async fn authorize(
    State((_, known)): State<Shared>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Response, Response> {
    enter(&known, "authorize").await?;
    let mut known = known.lock().unwrap();
    let get = |name: &str| query.get(name).cloned().unwrap_or_default();
    assert_eq!(
        (get("response_type"), get("code_challenge_method")),
        ("code".to_owned(), "S256".to_owned())
    );
    assert!(get("scope").split(' ').any(|scope| scope == "openid"));
    known.issued += 1;
    let code = format!("code-{}", known.issued);
    let sign_in = SignIn {
        client: get("client_id"),
        redirect: get("redirect_uri"),
        nonce: get("nonce"),
        challenge: get("code_challenge"),
    };
    let mut back = url::Url::parse(&sign_in.redirect).unwrap();
    back.query_pairs_mut().append_pair("code", &code).append_pair("state", &get("state"));
    if let Some(IssuerFault::Pretends(other)) = &known.fault {
        back.query_pairs_mut().append_pair("iss", other);
    }
    known.codes.insert(code, sign_in);
    Ok(Redirect::to(back.as_str()).into_response())
}

async fn token(
    State((url, known)): State<Shared>,
    headers: HeaderMap,
    body: String,
) -> Result<Response, Response> {
    enter(&known, "token").await?;
    let form = url::form_urlencoded::parse(body.as_bytes()).into_owned();
    let form = form.collect::<HashMap<String, String>>();
    let mut known = known.lock().unwrap();
    let get = |name: &str| form.get(name).cloned().unwrap_or_default();
    let refused =
        || (StatusCode::BAD_REQUEST, Json(json!({"error": "invalid_grant"}))).into_response();
    let sign_in = known.codes.remove(&get("code")).ok_or_else(refused)?;
    let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::of(get("code_verifier").as_bytes()).0);
    let is_right = get("grant_type") == "authorization_code"
        && get("redirect_uri") == sign_in.redirect
        && get("client_id") == sign_in.client
        && challenge == sign_in.challenge;
    let basic = known.secret.as_ref().map(|secret| {
        format!("Basic {}", BASE64_STANDARD.encode(format!("{}:{secret}", sign_in.client)))
    });
    let sent = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    if !is_right || sent != basic {
        return Err(refused());
    }
    let mut more = known.user.clone();
    more["nonce"] = sign_in.nonce.into();
    if let Some(IssuerFault::Claims(claims)) = &known.fault {
        for (name, value) in claims.as_object().unwrap() {
            more[name] = value.clone();
        }
    }
    let token = known.keys.sign(Signature::Rs256, &claims_of(&url, &sign_in.client, &more));
    let answer = json!({"access_token": "access", "token_type": "Bearer", "id_token": token});
    Ok(Json(answer).into_response())
}
