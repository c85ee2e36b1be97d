"""Admission where nobody limits anybody: the edge that stands by itself."""

from edge_api.admission.grants import UNLIMITED
from edge_api.hot.services import Grant, Need


class NoAdmission:
    """Lets everything in."""

    def admit_now(self, need: Need) -> Grant:
        return UNLIMITED

    async def admit(self, need: Need) -> Grant:
        return UNLIMITED
