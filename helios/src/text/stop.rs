//! Stop strings, wherever the text was cut into chunks.
//!
//! The longest suffix that can still become a stop string is held back, so no part of a stop string is ever
//! released. The text ends before the stop string that is complete first; of several complete at once, before the longest.

/// What a chunk released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    pub text: String,
    /// The stop string that is complete: nothing may follow.
    pub stop: Option<String>,
}

/// Looks for stop strings in one sequence's text.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
}

impl StopMatcher {
    /// `stops` are not empty strings; no stops at all hold nothing back.
    pub fn new(stops: Vec<String>) -> Self {
        debug_assert!(
            stops.iter().all(|stop| !stop.is_empty()),
            "an empty stop string would stop everything"
        );
        Self { stops, held: String::new() }
    }

    /// Takes the next chunk of text.
    pub fn push(&mut self, chunk: &str) -> Released {
        self.held.push_str(chunk);
        if let Some((start, stop)) = self.first_stop() {
            self.held.truncate(start);
            return Released { text: std::mem::take(&mut self.held), stop: Some(stop) };
        }
        let kept = self.held.split_off(self.held.len() - self.undecided_bytes());
        Released { text: std::mem::replace(&mut self.held, kept), stop: None }
    }

    /// Ends the text: what was held back did not become a stop string.
    pub fn finish(self) -> String {
        self.held
    }

    /// Where the first complete stop string starts, and which it is.
    fn first_stop(&self) -> Option<(usize, String)> {
        let found = self.stops.iter().filter_map(|stop| {
            let start = self.held.find(stop.as_str())?;
            Some((start + stop.len(), start, stop))
        });
        found.min().map(|(_, start, stop)| (start, stop.clone()))
    }

    /// Length of the longest suffix that begins a stop string.
    fn undecided_bytes(&self) -> usize {
        let text = self.held.as_bytes();
        let suffix = |stop: &String| {
            let longest = text.len().min(stop.len() - 1);
            (1..=longest).rev().find(|&bytes| stop.as_bytes().starts_with(&text[text.len() - bytes..]))
        };
        self.stops.iter().filter_map(suffix).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition: read one character at a time until some stop string is a suffix.
    fn naive(text: &str, stops: &[String]) -> (String, bool) {
        for end in (0..=text.len()).filter(|&end| text.is_char_boundary(end)) {
            let longest =
                stops.iter().filter(|stop| text[..end].ends_with(stop.as_str())).map(String::len).max();
            if let Some(bytes) = longest {
                return (text[..end - bytes].to_owned(), true);
            }
        }
        (text.to_owned(), false)
    }

    fn run(chunks: &[&str], stops: &[String]) -> (String, bool) {
        let mut matcher = StopMatcher::new(stops.to_vec());
        let mut shown = String::new();
        for chunk in chunks {
            let released = matcher.push(chunk);
            shown.push_str(&released.text);
            if let Some(stop) = released.stop {
                let through = shown.clone() + &stop;
                assert!(chunks.concat().starts_with(&through), "{stop:?} follows {shown:?}");
                return (shown, true);
            }
        }
        (shown + &matcher.finish(), false)
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(
            text in "[abé]{0,24}",
            stops in prop::collection::vec("[abé]{1,4}", 0..4),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        ) {
            let boundaries: Vec<usize> = (0..=text.len()).filter(|&at| text.is_char_boundary(at)).collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut.get(&boundaries)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&str> = cuts.windows(2).map(|window| &text[window[0]..window[1]]).collect();
            prop_assert_eq!(run(&chunks, &stops), naive(&text, &stops));
        }

        #[test]
        fn what_is_released_is_always_a_prefix_of_the_answer(
            text in "[ab]{0,16}",
            stops in prop::collection::vec("[ab]{1,4}", 1..4),
        ) {
            let (answer, _) = naive(&text, &stops);
            let mut matcher = StopMatcher::new(stops);
            let mut shown = String::new();
            for character in text.chars() {
                let released = matcher.push(&character.to_string());
                shown.push_str(&released.text);
                prop_assert!(answer.starts_with(&shown));
                if released.stop.is_some() {
                    break;
                }
            }
        }
    }

    #[test]
    fn only_what_can_become_a_stop_is_held() {
        let mut matcher = StopMatcher::new(vec!["</end>".to_owned()]);
        assert_eq!(matcher.push("a < b </e"), Released { text: "a < b ".to_owned(), stop: None });
        assert_eq!(matcher.push("m> "), Released { text: "</em> ".to_owned(), stop: None });
        assert_eq!(
            matcher.push("x</end>y"),
            Released { text: "x".to_owned(), stop: Some("</end>".to_owned()) }
        );
    }
}
