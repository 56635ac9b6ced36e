//! OpenAI's newer API: `POST /v1/responses`, and `GET` and `DELETE /v1/responses/{id}` of those that are kept.

mod read;
mod resource;
mod store;
mod tools;
mod write;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::Request;
use axum::response::Response;
use serde_json::{Value, json};

pub(super) use self::store::ResponseStore;

use self::resource::Resource;
use self::tools::ToolNames;
use self::write::ResponseFormat;
use super::constraint::AnswerForm;
use super::error::ApiError;
use super::fields::{Fields, unsupported};
use super::generate::GenerationPlan;
use super::options::{FieldNames, GenerationOptions};
use super::routes::{Caller, Json};
use super::service::{Service, random_id};
use super::{body, sse};
use crate::ids::ClientId;

pub(super) async fn create(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let body = body::read(&service, request).await?;
    let client = caller.client;
    let prepared = service.prepare(body, move |service, body| prepare(service, body, client)).await?;
    let Prepared { plan, resource, names, history } = prepared;
    let format = ResponseFormat::new(random_id("")?, resource, names, history);
    sse::answer(&service, plan, format, caller).await
}

/// A finished response, as it was answered.
pub(super) async fn retrieve(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json, ApiError> {
    service.responses.response(caller.client, &id).map(Json)
}

/// Forgets a response and the conversation that it ends.
pub(super) async fn forget(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json, ApiError> {
    service.responses.remove(caller.client, &id)?;
    Ok(Json(json!({"id": id, "object": "response", "deleted": true}).to_string()))
}

/// A request that is read.
struct Prepared {
    plan: GenerationPlan,
    resource: Resource,
    names: ToolNames,
    /// `None` if it must not be kept.
    history: Option<History>,
}

/// A conversation that a later response to the same client may continue.
struct History {
    client: ClientId,
    messages: Vec<Value>,
}

fn prepare(service: &Service, body: &[u8], client: ClientId) -> Result<Prepared, ApiError> {
    let body = Json::parse(body)?;
    let fields = Fields::root(&body)?;
    check_served(&fields)?;
    let mut options = GenerationOptions::read(&fields, &service.model, &FieldNames::RESPONSES)?;
    // This API has one answer a request.
    options.n = 1;
    let names = ToolNames::read(&fields)?;
    let earlier = match fields.string("previous_response_id")? {
        None => Vec::new(),
        Some(id) => service.responses.conversation(client, id)?,
    };
    let mut read = read::read_conversation(service, &fields, &names, earlier)?;
    read.conversation.form = AnswerForm::of_responses(&fields)?;
    let history =
        fields.boolean("store")?.unwrap_or(true).then_some(History { client, messages: read.history });
    let logprobs = read_logprobs(&fields, service.model.limits.logprobs_max)?;
    let resource = Resource::new(service, &fields, &options, logprobs)?;
    read.conversation.recall = options.recall();
    let prompt = read.conversation.prompt(service)?;
    let plan = GenerationPlan { prompts: vec![prompt], options, logprobs };
    Ok(Prepared { plan, resource, names, history })
}

/// Alternatives per token of the answer's text. Asking for any is asking for the tokens' own too.
fn read_logprobs(fields: &Fields<'_>, logprobs_max: u32) -> Result<Option<u32>, ApiError> {
    let included = fields.array("include")?.unwrap_or_default();
    let wanted = included.iter().any(|name| name == "message.output_text.logprobs");
    let alternatives = fields.integer("top_logprobs", 0..=i64::from(logprobs_max))?.unwrap_or(0);
    Ok((wanted || alternatives > 0).then_some(alternatives as u32))
}

/// What only OpenAI's own servers can do.
fn check_served(fields: &Fields<'_>) -> Result<(), ApiError> {
    if fields.boolean("background")?.unwrap_or(false) {
        return Err(unsupported("background", "a response is generated while its client waits"));
    }
    for name in ["conversation", "prompt"] {
        if fields.get(name).is_some() {
            return Err(unsupported(name, "nothing is kept here that it could refer to"));
        }
    }
    Ok(())
}
