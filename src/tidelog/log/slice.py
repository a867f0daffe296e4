"""What a fetch sends: a piece of a segment, straight from its file (on disk or in memory), never decoded."""

from tidelog.env.disk import File
from tidelog.env.network import Socket

SENDFILE_BYTES_MIN = 64 * 1024
"""Below, bytes are mapped and sent with what surrounds them in one system call; from here on sendfile is cheaper."""


class Slice:
    """Bytes [pos, pos + count) of a file. It keeps the file open: retention can't pull it away from a slow consumer."""

    __slots__ = ("count", "file", "pos")

    def __init__(self, file: File, pos: int, count: int) -> None:
        self.file = file
        self.pos = pos
        self.count = count

    def __len__(self) -> int:
        return self.count

    def view(self) -> memoryview:
        """The bytes, for a socket to send: mapped where the disk can do so, so that nobody else may look."""
        return self.file.view(self.pos, self.count)

    def distrust(self) -> None:
        """Sending it failed, and not because of the socket."""
        self.file.suspect = True

    def send(self, sock: Socket, sent: int) -> int:
        """Send what is left after `sent` bytes; how many went. May raise BlockingIOError."""
        return self.file.send(sock, self.pos + sent, self.count - sent)
