"""How much of this process's memory the bodies of requests may take. One that is sent slowly is held for long, so is
that of a long stream, which may have to go on elsewhere; and bodies are as long as clients like.
"""


class Bodies:
    """Owns how many bytes are held, in all and for each team. A team has half of what there is at most, so that it
    cannot shut the others out."""

    __slots__ = ("_of_team", "held_bytes")

    def __init__(self) -> None:
        self.held_bytes = 0
        self._of_team: dict[str, int] = {}

    def hold(self, team_id: str, size: int, max_bytes: int) -> bool:
        """Whether there is room for so many bytes more; if so, they are held until `let_go`."""
        of_team = self._of_team.get(team_id, 0) + size
        if self.held_bytes + size > max_bytes or 2 * of_team > max_bytes:
            return False
        self.held_bytes += size
        self._of_team[team_id] = of_team
        return True

    def let_go(self, team_id: str, size: int) -> None:
        """So many bytes are held no more."""
        self.held_bytes -= size
        left = self._of_team[team_id] - size
        if left:
            self._of_team[team_id] = left
        else:
            del self._of_team[team_id]
