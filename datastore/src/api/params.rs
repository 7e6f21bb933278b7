//! The query of a request, typed.
//!
//! An empty value means that the parameter is missing, as in Burrito. A repeated parameter is refused, because a proxy
//! or another reader of the same query may use another of its values. [`crate::api::error`] has the answers.

use std::any::type_name;
use std::cell::RefCell;
use std::fmt::Display;
use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::api::error::{ApiError, Cause};
use crate::api::query::RawQuery;
use crate::api::route::Route;
use crate::auth::policy::Access;
use crate::observe::context::RequestContext;

/// The parameters of a route. Extracting them checks that the caller may access what they name.
pub(crate) struct Query<T>(pub(crate) T);

/// The parameters of a route that every caller may use: its handler shows what the caller may read.
pub(crate) struct OpenQuery<T>(pub(crate) T);

/// The parameters of such a route, parsed from its query.
pub(crate) trait FromOpenParams: Sized {
    /// The route, which determines the text of errors.
    const ROUTE: Route;

    fn from_params(params: &Params) -> Result<Self, Cause>;
}

/// The parameters of a route, parsed from its query.
pub(crate) trait FromParams: Sized {
    /// The route, which determines the text of errors.
    const ROUTE: Route;

    fn from_params(params: &Params) -> Result<Self, Cause>;

    /// The access that the request needs. It has the same names that the handler uses.
    fn access(&self) -> Access<'_>;
}

/// Parses the parameters of a query. Or, to describe a route, records which parameters it parses.
pub(crate) struct Params<'a> {
    query: &'a RawQuery,
    recorded: Option<RefCell<Vec<ParamSpec>>>,
}

/// A parameter that a route takes.
pub(crate) struct ParamSpec {
    pub(crate) name: &'static str,
    pub(crate) required: bool,
    /// The name of the type that parses it.
    pub(crate) type_name: &'static str,
}

/// `true`, or nothing.
struct Flag;

/// Values that are passed to [`FromParams::from_params`] while its parameters are recorded. Parsing must succeed there to
/// reach the next parameter, so every type of a parameter must parse one of these.
const EXAMPLES: [&str; 7] = [
    "1",
    "json",
    "head",
    "plancha",
    "run-1/0",
    "fffa0b1c2d3e4f50-0123456789abcdef",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
];

impl<'a> Params<'a> {
    pub(crate) fn of(query: &'a RawQuery) -> Self {
        Self { query, recorded: None }
    }

    /// The parameters that this parses, in this order.
    pub(crate) fn specs<T>(parse: impl Fn(&Params) -> Result<T, Cause>) -> Vec<ParamSpec> {
        let query = RawQuery::default();
        let params = Params { query: &query, recorded: Some(RefCell::default()) };
        // Only the recorded parameters are needed.
        drop(parse(&params));
        params.recorded.map(RefCell::into_inner).unwrap_or_default()
    }

    /// Refuses a parameter that is given more than once.
    pub(crate) fn single(&self, parameter: &'static str) -> Result<(), Cause> {
        if self.query.count(parameter) > 1 {
            let reason = "is given more than once".to_owned();
            return Err(Cause::Parameter { parameter, reason });
        }
        Ok(())
    }

    pub(crate) fn optional<T>(&self, parameter: &'static str) -> Result<Option<T>, Cause>
    where
        T: FromStr<Err: Display>,
    {
        if let Some(example) = self.record(parameter, false) {
            return Ok(Some(example));
        }
        self.single(parameter)?;
        let invalid = |reason: String| Cause::Parameter { parameter, reason };
        let Some(text) = self.query.text(parameter) else { return Ok(None) };
        // Bytes that are not UTF-8 were replaced by this character. Different names must not become the same.
        if text.contains(char::REPLACEMENT_CHARACTER) {
            return Err(invalid("is not UTF-8".to_owned()));
        }
        text.parse().map(Some).map_err(|error: T::Err| invalid(error.to_string()))
    }

    pub(crate) fn required<T>(&self, parameter: &'static str) -> Result<T, Cause>
    where
        T: FromStr<Err: Display>,
    {
        if let Some(example) = self.record(parameter, true) {
            return Ok(example);
        }
        self.optional(parameter)?.ok_or(Cause::Missing(parameter))
    }

    /// Whether a parameter is `true`. It has no other value.
    pub(crate) fn flag(&self, parameter: &'static str) -> Result<bool, Cause> {
        Ok(self.optional::<Flag>(parameter)?.is_some())
    }

    /// Records the parameter and returns an example, if parameters are recorded.
    fn record<T: FromStr>(&self, name: &'static str, required: bool) -> Option<T> {
        let mut recorded = self.recorded.as_ref()?.borrow_mut();
        recorded.push(ParamSpec { name, required, type_name: type_name::<T>() });
        EXAMPLES.iter().find_map(|example| example.parse().ok())
    }
}

impl FromStr for Flag {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Routes are described with the example `1`.
        if matches!(text, "true" | "1") { Ok(Self) } else { Err("is not `true`") }
    }
}

impl<S: Sync, T: FromParams> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let refused = |cause: Cause| T::ROUTE.error()(of_address(T::ROUTE, cause));
        // Every request has a caller here, unless a route was added without authentication.
        let no_caller = || refused(Cause::Forbidden("this route has no caller".to_owned()));
        let context = parts.extensions.get::<RequestContext>().ok_or_else(no_caller)?;
        let query = T::from_params(&Params::of(context.query())).map_err(refused)?;
        let caller = context.caller().ok_or_else(no_caller)?;
        if !caller.may(query.access()) {
            return Err(refused(Cause::Forbidden(caller.denial(query.access()))));
        }
        Ok(Self(query))
    }
}

impl<S: Sync, T: FromOpenParams> FromRequestParts<S> for OpenQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let no_caller = || Cause::Forbidden("this route has no caller".to_owned());
        let context = parts.extensions.get::<RequestContext>().ok_or_else(no_caller);
        let query = context.and_then(|context| T::from_params(&Params::of(context.query())));
        query.map(Self).map_err(T::ROUTE.error())
    }
}

/// Names a part of the path by its place in the address.
fn of_address(route: Route, cause: Cause) -> Cause {
    match cause {
        Cause::Parameter { parameter, reason } if route.has_in_path(parameter) => {
            Cause::AddressPart { part: parameter.to_uppercase(), reason }
        }
        Cause::Missing(parameter) if route.has_in_path(parameter) => Cause::Address,
        cause => cause,
    }
}

#[cfg(test)]
mod tests {
    use datastore_api::Name;

    use super::*;

    fn name(query: &str) -> Result<Option<Name>, Cause> {
        Params::of(&RawQuery::parse(query)).optional("name")
    }

    #[test]
    fn a_repeated_parameter_is_refused_and_an_empty_one_is_missing() {
        let text = |query| name(query).unwrap().map(|name| name.to_string());
        assert_eq!(text("a=b&name=x+y%23&a=c").as_deref(), Some("x y#"));
        for query in ["name=x&name=x", "name=x&n%61me=z", "name=&name=z", "name=x&name"] {
            assert!(
                matches!(name(query), Err(Cause::Parameter { parameter: "name", .. })),
                "{query}"
            );
        }
        assert_eq!(text("name="), None);
        assert_eq!(text("name"), None);
        assert_eq!(text(""), None);
        let empty = RawQuery::default();
        assert!(matches!(Params::of(&empty).required::<Name>("name"), Err(Cause::Missing("name"))));
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused() {
        for query in ["name=%ff", "name=a%C3", "name=..", "name=a%2Fb", "name=a%00"] {
            assert!(matches!(name(query), Err(Cause::Parameter { .. })), "{query}");
        }
    }
}
