"""A controller that doesn't lead names its endpoints and features to the one that does, as Kafka's controllers do.

The active controller names its own when it comes to lead (`controller/controller.py`). Others look, when they are told
of a change and once in a while, whether the metadata has this very incarnation of them.

Where another incarnation takes the place of one that was registered, two processes run with one node id. Were each of
them to answer the other at once, they would fill the metadata log for as long as both live: so that is asked for only
once in a while, and said.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tidelog.metadata.versions import MV_3_7_IV0, SUPPORTED
from tidelog.wire.messages.controller_registration import ControllerRegistrationRequest, Feature, Listener

if TYPE_CHECKING:
    from tidelog.apis.shared.controller_channel import ControllerChannel
    from tidelog.controller.controller import Controller
    from tidelog.env import Environment
    from tidelog.env.promise import Promise
    from tidelog.metadata.follow import Follower

log = logging.getLogger("tidelog.broker")

LOOK_S = 2.0
TIMEOUT_MS = 10_000


class ControllerRegistration:
    def __init__(
        self, env: Environment, controller: Controller, metadata: Follower, channel: ControllerChannel
    ) -> None:
        self._env = env
        self._controller = controller
        self._metadata = metadata
        self._channel = channel
        self._asking = False
        self._was_known = False
        """The active controller took this incarnation once."""

    def start(self) -> None:
        self._metadata.subscribe(self._published)
        self._look()

    def _published(self, *_: object) -> None:
        if not self._was_known and self._is_due():
            # not from within what publishes: a checkpoint may be loaded before there is a quorum
            self._env.loop.call_soon(self._register_if_due)

    def _look(self) -> None:
        if self._controller.raft.stopped:
            return
        named = self._controller.raft.local.key.id in self._metadata.image.controllers
        if named and self._was_known and self._is_due():
            self._tell_of_another()
        self._register_if_due()
        self._env.loop.call_later(LOOK_S, self._look)

    def _register_if_due(self) -> None:
        if not self._controller.raft.stopped and self._is_due():
            self._asking = True
            self._channel.ask(self._request(), TIMEOUT_MS).on_done(self._answered)

    def _is_due(self) -> bool:
        """Whether the metadata that is known here lacks this controller."""
        image, local = self._metadata.image, self._controller.raft.local
        if self._asking or self._controller.active or image.metadata_version < MV_3_7_IV0:
            return False
        known = image.controllers.get(local.key.id)
        return known is None or known.incarnation_id != self._controller.incarnation_id

    def _tell_of_another(self) -> None:
        log.warning(
            "another process says that it is controller %d of this cluster, too: stop one of them, or give it a "
            "node.id of its own",
            self._controller.raft.local.key.id,
        )

    def _request(self) -> ControllerRegistrationRequest:
        local = self._controller.raft.local
        return ControllerRegistrationRequest(
            controller_id=local.key.id,
            incarnation_id=self._controller.incarnation_id,
            listeners=[Listener(name=one.name, host=one.host, port=one.port) for one in local.endpoints],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED.items()
            ],
        )

    def _answered(self, promise: Promise[Any]) -> None:
        self._asking = False
        if promise.error is not None:
            return
        if not promise.result().error_code:
            self._was_known = True
        else:
            log.warning("the active controller refuses to register controller %d", self._controller.raft.local.key.id)
