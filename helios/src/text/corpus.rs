//! The corpus of `tests/text`: chat templates of many families, conversations, and what Transformers renders of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::template::{ChatTemplate, Rendering, TemplateError, TemplateInput};
use super::testing::byte_level_tokenizer;
use super::tokenizer::{Encoded, Recall, SpecialTokens, Tokenizer};

struct Family {
    name: String,
    template: ChatTemplate,
    /// By conversation; none where Transformers fails.
    expected: Map<String, Value>,
}

struct Conversation {
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    add_generation_prompt: bool,
    variables: Map<String, Value>,
}

impl Conversation {
    /// Renders the first `count` messages, with the open header only if it is asked for.
    fn render(
        &self,
        template: &ChatTemplate,
        count: usize,
        header: bool,
    ) -> Result<Rendering, TemplateError> {
        template.render(&TemplateInput {
            messages: &self.messages[..count],
            tools: self.tools.as_deref(),
            add_generation_prompt: header,
            extra: &self.variables,
        })
    }

    fn render_whole(&self, template: &ChatTemplate) -> Result<Rendering, TemplateError> {
        self.render(template, self.messages.len(), self.add_generation_prompt)
    }

    /// The lengths of renderings of fewer messages, or without the open header, that begin the whole one.
    fn boundaries(&self, template: &ChatTemplate, whole: &str) -> Vec<usize> {
        (0..=self.messages.len())
            .filter_map(|count| self.render(template, count, false).ok())
            .filter(|part| part.text != "<s>" && whole.starts_with(&part.text))
            .map(|part| part.text.len())
            .filter(|&length| 0 < length && length < whole.len())
            .collect()
    }
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/text")
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn families() -> Vec<Family> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(corpus().join("templates")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let family = |path: &PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let source = fs::read_to_string(path).unwrap();
        let template = ChatTemplate::parse(&source, "<s>", "</s>", 1 << 16).unwrap().with_date_shown();
        let expected = json(&corpus().join("renderings").join(format!("{name}.json")));
        Family { name, template, expected: expected.as_object().unwrap().clone() }
    };
    paths.iter().map(family).collect()
}

fn conversations() -> BTreeMap<String, Conversation> {
    let file = json(&corpus().join("conversations.json"));
    let conversation = |fields: &Value| Conversation {
        messages: fields["messages"].as_array().unwrap().clone(),
        tools: fields["tools"].is_boolean().then(|| file["tools"].as_array().unwrap().clone()),
        add_generation_prompt: fields["add_generation_prompt"].as_bool().unwrap(),
        variables: fields["variables"].as_object().cloned().unwrap_or_default(),
    };
    let conversations = file["conversations"].as_object().unwrap();
    conversations.iter().map(|(name, fields)| (name.clone(), conversation(fields))).collect()
}

/// Every rendering of the corpus that succeeds.
fn renderings() -> Vec<(String, Rendering)> {
    let conversations = conversations();
    let mut renderings = Vec::new();
    for family in families() {
        for (name, conversation) in &conversations {
            let rendering = conversation.render_whole(&family.template);
            renderings.extend(rendering.ok().map(|rendering| (format!("{} {name}", family.name), rendering)));
        }
    }
    renderings
}

#[test]
fn every_template_renders_what_transformers_renders() {
    let conversations = conversations();
    let mut differences = Vec::new();
    for family in families() {
        assert_eq!(family.expected.len(), conversations.len(), "{} is up to date", family.name);
        for (name, conversation) in &conversations {
            let rendered = conversation.render_whole(&family.template).map(|rendering| rendering.text);
            let expected = family.expected[name].as_str();
            let text = rendered.as_deref().ok();
            if text != expected {
                let pairs = text.unwrap_or_default().bytes().zip(expected.unwrap_or_default().bytes());
                let same = pairs.take_while(|(left, right)| left == right).count();
                let rest = |text: &str| String::from_utf8_lossy(&text.as_bytes()[same..]).into_owned();
                let (text, expected) = (rendered.map(|text| rest(&text)), expected.map(rest));
                differences
                    .push(format!("{} {name} from {same}: {text:?}, but should {expected:?}", family.name));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn the_ends_of_messages_are_marked() {
    let conversations = conversations();
    let mut missed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut boundaries = 0;
    let families = families();
    for family in &families {
        for (name, conversation) in &conversations {
            let Ok(Rendering { text, marks }) = conversation.render_whole(&family.template) else { continue };
            let place = format!("{} {name}: {marks:?}", family.name);
            assert!(marks.is_sorted_by(|left, right| left < right), "{place}");
            assert!(marks.iter().all(|&mark| text.is_char_boundary(mark) && mark <= text.len()), "{place}");
            for boundary in conversation.boundaries(&family.template, &text) {
                boundaries += 1;
                if !marks.contains(&boundary) {
                    let miss = format!("{place} and not {boundary}: {:?}", &text[..boundary]);
                    missed.entry(family.name.clone()).or_default().push(miss);
                }
            }
        }
    }
    // Boundaries inside a template's expressions or macros, where nothing can be noted.
    let known = json(&corpus().join("partly_marked.json"));
    assert!(missed.keys().eq(known.as_object().unwrap().keys()), "{missed:#?}");
    assert!(missed.len() * 10 <= families.len(), "{} of {}", missed.len(), families.len());
    let misses = missed.values().map(Vec::len).sum::<usize>();
    assert!(misses * 20 < boundaries, "{misses} of {boundaries}");
}

#[test]
fn the_open_header_is_not_marked() {
    let conversations = conversations();
    let mut count = 0;
    for family in families() {
        for (name, conversation) in conversations.iter().filter(|(_, each)| each.add_generation_prompt) {
            let all = conversation.messages.len();
            let Ok(Rendering { text, marks }) = conversation.render_whole(&family.template) else { continue };
            let Ok(closed) = conversation.render(&family.template, all, false) else { continue };
            if text.len() > closed.text.len() && text.starts_with(&closed.text) {
                let place = format!("{} {name}: {marks:?} {text}", family.name);
                assert!(marks.iter().all(|&mark| mark <= closed.text.len()), "{place}");
                count += 1;
            }
        }
    }
    assert!(count > 500, "{count}");
}

/// A byte-level BPE whose merges were learnt from the renderings, delimiters included, and that cuts whitespace from spans.
fn trained_tokenizer(texts: &[&str]) -> Tokenizer {
    use tokenizers::models::TrainerWrapper;
    use tokenizers::models::bpe::{BPE, BpeTrainer};
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;
    let byte_level = ByteLevel::new(false, true, true);
    let mut tokenizer = tokenizers::Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(byte_level)).with_decoder(Some(byte_level));
    tokenizer.with_post_processor(Some(byte_level));
    let alphabet = ByteLevel::alphabet().into_iter().collect();
    let trainer = BpeTrainer::builder().vocab_size(1500).show_progress(false).initial_alphabet(alphabet);
    let mut trainer: TrainerWrapper = trainer.build().into();
    tokenizer.train(&mut trainer, texts.iter().copied()).unwrap();
    Tokenizer::from_bytes(tokenizer.to_string(false).unwrap().as_bytes(), 1 << 20).unwrap()
}

#[test]
fn endpoints_are_the_marks_that_fall_between_tokens() {
    let renderings = renderings();
    let texts: Vec<&str> = renderings.iter().map(|(_, rendering)| rendering.text.as_str()).collect();
    let (mut cuts, mut across) = (0, 0);
    for tokenizer in [trained_tokenizer(&texts), byte_level_tokenizer()] {
        for (place, Rendering { text, marks }) in &renderings {
            let Encoded { tokens, endpoints } =
                tokenizer.encode_marked(text, SpecialTokens::AsWritten, Recall::Allowed, marks).unwrap();
            assert_eq!(tokens, tokenizer.encode(text, SpecialTokens::AsWritten).unwrap());
            let mut bytes = 0;
            let mut between = Vec::new();
            for (index, &token) in tokens.iter().enumerate() {
                if index > 0 && marks.contains(&bytes) {
                    between.push(index as u32);
                }
                bytes += tokenizer.piece(token).bytes.len();
            }
            assert_eq!(bytes, text.len(), "a byte-level token has its own bytes");
            assert_eq!(endpoints, between, "{place}");
            cuts += endpoints.len();
            across += marks.iter().filter(|&&mark| mark < text.len()).count() - endpoints.len();
        }
    }
    assert!(cuts > 5000 && across > 100, "{cuts} cuts, {across} marks inside a token");
}
