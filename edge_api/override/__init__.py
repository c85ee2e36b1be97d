"""Break-glass on this edge: orders that operators sign and hand it directly, which beat the snapshot until they end."""
