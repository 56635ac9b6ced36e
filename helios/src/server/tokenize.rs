//! `POST /tokenize` and `POST /detokenize`, in vLLM's shape.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use serde_json::json;

use super::error::ApiError;
use super::fields::{Fields, missing, token_id};
use super::routes::Json;
use super::service::Service;
use super::{body, chat};
use crate::ids::TokenId;
use crate::text::SpecialTokens;

/// The tokens of a `prompt`, or of the prompt that `messages` make.
pub(super) async fn tokenize(
    State(service): State<Arc<Service>>,
    request: Request<Body>,
) -> Result<Json, ApiError> {
    let body = body::read(&service, request).await?;
    let answer = service
        .prepare(body, |service, body| {
            let body = Json::parse(body)?;
            let fields = Fields::root(&body)?;
            fields.string("model")?;
            let tokens = tokens(service, &fields)?;
            let names = fields.boolean("return_token_strs")?.unwrap_or(false).then(|| {
                let name =
                    |&token| String::from_utf8_lossy(&service.text.tokenizer.piece(token).bytes).into_owned();
                tokens.iter().map(name).collect::<Vec<String>>()
            });
            Ok(json!({
                "count": tokens.len(),
                "max_model_len": service.model.limits.context_tokens_max,
                "tokens": tokens.iter().map(|token| token.0).collect::<Vec<u32>>(),
                "token_strs": names,
            }))
        })
        .await?;
    Ok(Json(answer.to_string()))
}

/// The text of `tokens`.
pub(super) async fn detokenize(
    State(service): State<Arc<Service>>,
    request: Request<Body>,
) -> Result<Json, ApiError> {
    let body = body::read(&service, request).await?;
    let text = service
        .prepare(body, |service, body| {
            let body = Json::parse(body)?;
            let fields = Fields::root(&body)?;
            fields.string("model")?;
            let tokens = fields.array("tokens")?.ok_or_else(|| missing("tokens"))?;
            let vocabulary = service.model.limits.vocabulary;
            let tokens: Vec<TokenId> = tokens
                .iter()
                .map(|id| token_id(id, vocabulary, "tokens", "an array of token ids"))
                .collect::<Result<_, _>>()?;
            Ok(service.text.tokenizer.decode(&tokens))
        })
        .await?;
    Ok(Json(json!({"prompt": text}).to_string()))
}

fn tokens(service: &Service, fields: &Fields<'_>) -> Result<Vec<TokenId>, ApiError> {
    if fields.get("messages").is_some() {
        return chat::read_conversation(service, fields)?.tokens(service);
    }
    let prompt = fields.required("prompt")?;
    let special = match fields.boolean("add_special_tokens")? {
        Some(false) => SpecialTokens::AsWritten,
        _ => SpecialTokens::Add,
    };
    service.text.tokenizer.encode(prompt, special).map_err(|error| ApiError::tokenizing("prompt", &error))
}
