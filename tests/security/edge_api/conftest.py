"""The edge of the hot path's own tests, to attack."""

from tests.integration.edge_api.hot.conftest import edge as edge
from tests.integration.edge_api.hot.conftest import edge_loop as edge_loop
from tests.integration.edge_api.hot.conftest import edge_parts as edge_parts
from tests.integration.edge_api.hot.conftest import home as home
from tests.integration.edge_api.hot.conftest import limits as limits
from tests.integration.edge_api.hot.conftest import other as other
