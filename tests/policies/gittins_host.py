"""`gittins` for policies that rank without a memo at hand: it keeps what was learned last."""

from __future__ import annotations

from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.service.predictor import Observations
from trainmaster.model.plan import Rank
from trainmaster.policies.gittins import Gittins


class LearningGittins(Gittins):
    seen = Observations()

    def learn(self, seen: Observations, view: View, now: int) -> Observations:
        self.seen = self.service.learn(seen, view, now)
        return self.seen

    def cost(self, record: JobRecord, now: int) -> int:
        return self.service.cost(self.seen, record, record.attained_at(now))[0]

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        return self.rank_of(self.seen, record, now)
