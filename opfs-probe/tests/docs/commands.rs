//! Every command shown is one that there is, with options that there are.

use std::collections::BTreeSet;
use std::fs;
use std::iter::Peekable;
use std::str::Chars;

use clap::error::ErrorKind;

use crate::{blocks, page, pages, root, sections};

#[test]
fn every_command_shown_can_be_given() {
    let mut checked = 0;
    for (name, line) in shown() {
        // `$$` is a process id.
        for words in commands(&line.replace("$$", "1")) {
            if words[0] == "opfs-probe" {
                checked += 1;
                match opfs_probe::cli::command().try_get_matches_from(&words) {
                    Err(error) if error.kind() != ErrorKind::DisplayHelp => panic!("{name}: {line}\n{error}"),
                    _ => {}
                }
            } else if words.len() > 2 && words[..2] == ["cargo", "xtask"] {
                checked += 1;
                assert!(tasks().contains(&words[2]), "{name}: {line}: there is no such task");
            }
        }
    }
    assert!(checked > 50, "only {checked} commands were found");
}

#[test]
fn every_subcommand_is_documented_and_no_other() {
    let there: BTreeSet<String> =
        opfs_probe::cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let text = page("docs/cli.md");
    let not_commands = ["", "Commands", "Variables"];
    let documented: BTreeSet<String> = sections(&text)
        .iter()
        .filter(|(title, _)| !not_commands.contains(title))
        .flat_map(|(title, _)| title.split(" and "))
        .map(|title| title.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(documented, there);
}

#[test]
fn every_option_is_shown() {
    let shown: BTreeSet<String> = pages()
        .iter()
        .flat_map(|(_, text)| {
            text.split(|c: char| !(c.is_alphanumeric() || c == '-')).map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let mut left = vec![opfs_probe::cli::command()];
    while let Some(command) = left.pop() {
        for option in
            command.get_arguments().filter_map(clap::Arg::get_long).filter(|long| *long != "verbose")
        {
            assert!(
                shown.contains(&format!("--{option}")),
                "{} --{option} is in no document",
                command.get_name()
            );
        }
        left.extend(command.get_subcommands().cloned());
    }
}

/// Lines that a reader would type, with the page that shows them.
fn shown() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (name, text) in pages() {
        for (language, lines) in blocks(&text) {
            let typed: Vec<&str> = match language {
                "console" => lines.iter().filter_map(|line| line.strip_prefix("$ ")).collect(),
                "sh" => lines,
                _ => continue,
            };
            all.extend(typed.into_iter().map(|line| (name.clone(), line.to_owned())));
        }
    }
    all
}

/// The development tasks: the variants of `Task`, in the words of a command line.
fn tasks() -> BTreeSet<String> {
    let source = fs::read_to_string(root().join("xtask/src/main.rs")).unwrap();
    let tasks = source.split("enum Task {").nth(1).unwrap().split("\n}").next().unwrap();
    let variants = tasks.lines().filter_map(|line| line.trim().split_once('(')).map(|(variant, _)| variant);
    variants
        .filter(|variant| variant.chars().all(char::is_alphanumeric))
        .map(|variant| {
            let mut name = String::new();
            for letter in variant.chars() {
                if letter.is_uppercase() && !name.is_empty() {
                    name.push('-');
                }
                name.extend(letter.to_lowercase());
            }
            name
        })
        .collect()
}

/// The simple commands of a shell line, those in `$( )` too, without `sudo` and words like `do`.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    Shell { rest: line.chars().peekable(), all: &mut all }.list(None);
    for words in &mut all {
        let skip = |word: &String| matches!(word.as_str(), "sudo" | "do" | "then" | "else");
        let first = words.iter().position(|word| !skip(word)).unwrap_or(words.len());
        words.drain(..first);
    }
    all.retain(|words| !words.is_empty());
    all
}

/// As much of a shell's grammar as the documents use.
struct Shell<'a> {
    rest: Peekable<Chars<'a>>,
    all: &'a mut Vec<Vec<String>>,
}

impl Shell<'_> {
    fn list(&mut self, until: Option<char>) {
        let mut words: Vec<String> = Vec::new();
        let mut word: Option<String> = None;
        while let Some(next) = self.rest.next() {
            if Some(next) == until {
                break;
            }
            match next {
                ' ' => words.extend(word.take()),
                '|' | ';' | '&' => {
                    words.extend(word.take());
                    self.all.push(std::mem::take(&mut words));
                }
                '#' if word.is_none() => while self.rest.next_if(|next| Some(*next) != until).is_some() {},
                '>' | '<' => {
                    words.extend(word.take());
                    while self.rest.next_if_eq(&' ').is_some() {}
                    while self.rest.next_if(|next| *next != ' ').is_some() {}
                }
                '\'' => {
                    word.get_or_insert_default().extend(self.rest.by_ref().take_while(|next| *next != '\''));
                }
                '"' => {
                    let word = word.get_or_insert_default();
                    while let Some(next) = self.rest.next().filter(|next| *next != '"') {
                        word.push(next);
                        self.substitution(next);
                    }
                }
                other => {
                    word.get_or_insert_default().push(other);
                    self.substitution(other);
                }
            }
        }
        words.extend(word);
        self.all.push(words);
    }

    fn substitution(&mut self, after: char) {
        if after == '$' && self.rest.next_if_eq(&'(').is_some() {
            self.list(Some(')'));
        }
    }
}

#[test]
fn shell_lines_come_apart() {
    let apart = |line: &str| commands(line).into_iter().map(|words| words.join(" ")).collect::<Vec<_>>();
    assert_eq!(apart("sudo a --b 'c d' | e > f # g"), ["a --b c d", "e"]);
    assert_eq!(apart("id=$(a b --pid $$)"), ["a b --pid $$", "id=$"]);
    assert_eq!(
        apart(r#"for i in $(seq 9); do a "$(b)" -- c; done"#),
        ["seq 9", "for i in $", "b", "a $ -- c", "done"]
    );
}
