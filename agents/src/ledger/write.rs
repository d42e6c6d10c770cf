//! Transactions: one for a single call, or one for all waiting calls (group commit).

use super::error::Doing;
use super::{Cache, Ledger, LedgerError};

impl Ledger {
    /// Runs `write` in a transaction: a separate one, or the shared one if it is open. `write` must
    /// return rejections ([`LedgerError::Fenced`], ...) before it changes anything; a storage error
    /// ends the whole transaction.
    pub(super) fn write<R>(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<R, LedgerError>,
    ) -> Result<R, LedgerError> {
        if self.grouped {
            return self.write_grouped(write);
        }
        self.begin()?;
        let answer = write(self);
        match answer {
            Ok(answer) => self.commit().map(|()| answer),
            Err(error) => {
                self.roll_back()?;
                Err(error)
            }
        }
    }

    fn write_grouped<R>(&mut self, write: impl FnOnce(&mut Self) -> Result<R, LedgerError>) -> Result<R, LedgerError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let answer = write(self);
        if let Err(error @ (LedgerError::Storage { .. } | LedgerError::Content { .. })) = &answer {
            self.broken = Some(error.clone());
        }
        answer
    }

    /// Opens a transaction that the following calls share.
    pub(super) fn begin_group(&mut self) -> Result<(), LedgerError> {
        self.begin()?;
        self.grouped = true;
        Ok(())
    }

    /// Makes all calls since [`Ledger::begin_group`] durable, or none of them.
    pub(super) fn end_group(&mut self) -> Result<(), LedgerError> {
        self.grouped = false;
        match self.broken.take() {
            None => self.commit(),
            Some(error) => {
                self.roll_back()?;
                Err(error)
            }
        }
    }

    fn begin(&mut self) -> Result<(), LedgerError> {
        self.connection.execute_batch("BEGIN IMMEDIATE").doing("written")?;
        let newest: i64 = self
            .connection
            .prepare_cached("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'opening'")
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .doing("written")?;
        if newest == self.opening {
            return Ok(());
        }
        self.roll_back()?;
        Err(LedgerError::Fenced {
            ours: self.opening,
            newest,
        })
    }

    fn commit(&mut self) -> Result<(), LedgerError> {
        broker::fail::point("ledger.uncommitted");
        let committed = self
            .cache
            .save_counters(&self.connection)
            .and_then(|()| self.connection.execute_batch("COMMIT").doing("committed"));
        broker::fail::point("ledger.committed");
        if committed.is_err() {
            self.roll_back()?;
        }
        committed
    }

    /// Undoes the transaction in the file and in memory.
    fn roll_back(&mut self) -> Result<(), LedgerError> {
        if !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK").doing("rolled back")?;
        }
        let mut cache = Cache::load(&self.connection, tokio::time::Instant::now())?;
        cache.keep_waits_of(&self.cache);
        self.cache = cache;
        Ok(())
    }
}
