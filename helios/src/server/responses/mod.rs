//! OpenAI's newer API: `POST /v1/responses`.

mod read;
mod resource;
mod store;
mod tools;
mod write;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::Request;
use axum::response::Response;
use serde_json::Value;

pub(super) use self::store::ResponseStore;

use self::resource::Resource;
use self::tools::ToolNames;
use self::write::ResponseFormat;
use super::constraint::AnswerForm;
use super::error::ApiError;
use super::fields::{Fields, unsupported};
use super::generate::GenerationPlan;
use super::options::{FieldNames, GenerationOptions};
use super::routes::{Json, RequestId};
use super::service::{Service, random_id};
use super::{body, sse};

pub(super) async fn create(
    State(service): State<Arc<Service>>,
    Extension(id): Extension<RequestId>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let body = body::read(&service, request).await?;
    let Prepared { plan, resource, names, history } = service.prepare(body, prepare).await?;
    let format = ResponseFormat::new(random_id("")?, resource, names, history);
    sse::answer(&service, plan, format, id).await
}

/// A request that is read.
struct Prepared {
    plan: GenerationPlan,
    resource: Resource,
    names: ToolNames,
    /// The conversation that a later response may continue; `None` if it must not be kept.
    history: Option<Vec<Value>>,
}

fn prepare(service: &Service, body: &[u8]) -> Result<Prepared, ApiError> {
    let body = Json::parse(body)?;
    let fields = Fields::root(&body)?;
    service.model.check_name(fields.string("model")?)?;
    check_served(&fields)?;
    let mut options = GenerationOptions::read(&fields, &service.model, &FieldNames::RESPONSES)?;
    // This API has one answer a request.
    options.n = 1;
    let names = ToolNames::read(&fields)?;
    let earlier = match fields.string("previous_response_id")? {
        None => Vec::new(),
        Some(id) => service.responses.find(id)?,
    };
    let mut read = read::read_conversation(service, &fields, &names, earlier)?;
    read.conversation.form = AnswerForm::of_responses(&fields)?;
    let history = fields.boolean("store")?.unwrap_or(true).then_some(read.history);
    let resource = Resource::new(service, &fields, &options)?;
    let prompt = read.conversation.prompt(service)?;
    let plan = GenerationPlan { prompts: vec![prompt], options, logprobs: None };
    Ok(Prepared { plan, resource, names, history })
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
