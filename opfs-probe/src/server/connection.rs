//! One client's conversation: what may be said when, whatever carries it.

use std::sync::Arc;

use super::answer::{Answer, Code, Refusal};
use super::limits::Limits;
use super::protocol::{BeginMessage, EndMessage, Hello, Message, parse};
use super::token::Token;
use super::watch::{BeginDetached, End, EndDetached, Ended, Joined, Peer, Watch};
use crate::attribution::window::Begin;

/// One client. When it is dropped, however that comes about, the client's windows end as aborted.
pub struct Connection {
    watch: Arc<dyn Watch>,
    limits: Arc<Limits>,
    peer: Peer,
    /// What its hello must show; none if it is let in without.
    token: Option<Token>,
    joined: Option<Joined>,
}

impl Connection {
    /// A client that has not said anything yet.
    pub fn new(watch: Arc<dyn Watch>, limits: Arc<Limits>, peer: Peer, token: Option<Token>) -> Self {
        Self { watch, limits, peer, token, joined: None }
    }

    /// Whether the client has said hello and was let in.
    pub fn is_welcome(&self) -> bool {
        self.joined.is_some()
    }

    /// Does what a message asks for, and gives the answer if there is one to give.
    pub fn hear(&mut self, message: &[u8]) -> Option<Answer> {
        parse(message, &self.limits)
            .and_then(|message| self.obey(message))
            .unwrap_or_else(|refusal| Some(refusal.into()))
    }

    fn obey(&mut self, message: Message) -> Result<Option<Answer>, Refusal> {
        match message {
            Message::Hello(hello) => self.hello(&hello).map(Some),
            Message::Begin(begin) if begin.detached => {
                self.privileged("a detached window")?;
                begin_detached(self.watch.as_ref(), &self.peer, begin).map(Some)
            }
            Message::End(end) if end.detached => {
                self.privileged("a detached window").map_err(|refusal| refusal.about(Some(&end.id)))?;
                end_detached(self.watch.as_ref(), &self.peer, end).map(Some)
            }
            Message::Begin(begin) => self.begin(begin).map(Some),
            Message::End(end) => self.end(end).map(Some),
            Message::Result { name, data } => {
                let joined = self.session()?;
                self.watch.result(joined.session_id, name, data)?;
                Ok(None)
            }
            Message::Report(filter) => {
                self.privileged("a report")?;
                self.watch.report(&filter).map(|report| Some(Answer::Report(report)))
            }
            Message::Windows => {
                self.privileged("the list of windows")?;
                Ok(Some(Answer::Windows(self.watch.windows())))
            }
        }
    }

    fn hello(&mut self, hello: &Hello) -> Result<Answer, Refusal> {
        if self.joined.is_some() {
            return Err(Refusal::bad("hello was said already"));
        }
        if let Some(token) = &self.token
            && !token.admits(hello.token.as_deref())
        {
            let message = "a page of another origin must show the probe's token, and this is not it";
            return Err(Refusal::new(Code::Unauthorized, message));
        }
        let joined = self.watch.join(&self.peer, hello)?;
        Ok(Answer::Welcome(self.joined.insert(joined).clone()))
    }

    fn begin(&self, begin: BeginMessage) -> Result<Answer, Refusal> {
        let id = begin.id.ok_or_else(|| Refusal::bad("`id` is missing: a held window needs one"))?;
        let answered = self.session().and_then(|joined| {
            let begin = Begin {
                client: joined.client,
                client_id: id.clone(),
                name: begin.name,
                parent: begin.parent,
                calls: begin.calls,
                attrs: begin.attrs,
            };
            self.watch.begin(joined.session_id, begin)
        });
        let at = answered.map_err(|refusal| refusal.about(Some(&id)))?;
        Ok(Answer::Begun { id, at })
    }

    fn end(&self, end: EndMessage) -> Result<Answer, Refusal> {
        let EndMessage { id, calls, attrs, .. } = end;
        let ended = self.session().and_then(|joined| {
            let end = End { client: joined.client, client_id: id.clone(), calls, attrs };
            self.watch.end(joined.session_id, end)
        });
        answer_end(id, ended)
    }

    fn session(&self) -> Result<&Joined, Refusal> {
        self.joined.as_ref().ok_or_else(|| Refusal::bad("say hello first"))
    }

    /// Only processes known by their credentials may ask for more than their own windows.
    fn privileged(&self, what: &str) -> Result<(), Refusal> {
        match self.peer {
            Peer::Process { .. } => Ok(()),
            Peer::Tcp { .. } => {
                let message =
                    format!("{what} can be asked for on the unix socket, or over HTTP with the token");
                Err(Refusal::new(Code::Unauthorized, message))
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(joined) = &self.joined {
            self.watch.abandon(joined.client);
        }
    }
}

/// Begins a window that needs no connection. The caller has checked that the peer may.
pub(super) fn begin_detached(watch: &dyn Watch, peer: &Peer, begin: BeginMessage) -> Result<Answer, Refusal> {
    let BeginMessage { id: _, name, parent, calls, attrs, detached: _, pid } = begin;
    let (id, at) =
        watch.begin_detached(peer, BeginDetached { owner_pid: pid, name, parent, calls, attrs })?;
    Ok(Answer::Begun { id, at })
}

/// Ends a window that needs no connection. The caller has checked that the peer may.
pub(super) fn end_detached(watch: &dyn Watch, peer: &Peer, end: EndMessage) -> Result<Answer, Refusal> {
    let EndMessage { id, calls, attrs, .. } = end;
    let ended = watch.end_detached(peer, EndDetached { id: id.clone(), calls, attrs });
    answer_end(id, ended)
}

fn answer_end(id: String, ended: Result<Ended, Refusal>) -> Result<Answer, Refusal> {
    let Ended { at, sync_calls, sync_ns } = ended.map_err(|refusal| refusal.about(Some(&id)))?;
    Ok(Answer::Ended { id, at, sync_calls, sync_ns })
}
