"""The task queue: Celery on Valkey, as the replicas publish to it and the worker reads from it.

It carries only work whose loss or repeat is harmless. Valkey may be wiped at any moment: what matters is in the outbox
table or is found again by the beat.
"""

from celery import Celery

VISIBILITY_TIMEOUT_S = 3_600
SOCKET_TIMEOUT_S = 5.0


def build_queue(redis_url: str) -> Celery:
    """A Celery app without tasks. Its visibility timeout exceeds every task's deadline and every retry's delay."""
    app = Celery("meridian", broker=redis_url, set_as_current=False)
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_connection_timeout=SOCKET_TIMEOUT_S,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "unacked_restore_interval": 10,
            "unacked_restore_throttle": 1,
            "global_keyprefix": "cel:",
            "socket_timeout": SOCKET_TIMEOUT_S,
            "socket_connect_timeout": SOCKET_TIMEOUT_S,
            "socket_keepalive": True,
        },
        enable_utc=True,
    )
    return app
