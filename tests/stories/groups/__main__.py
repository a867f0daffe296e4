"""`python -m tests.stories.groups OPTIONS`: one member of a group, through the client that the options name."""

import json
import sys

from tests.stories.groups.diary import Options


def main() -> None:
    options = Options(**json.loads(sys.argv[1]))
    if options.client.startswith("confluent-"):
        from tests.stories.groups.confluent_member import Member
    elif options.client == "kafka-python":
        from tests.stories.groups.kafka_python_member import Member
    else:
        from tests.stories.groups.aiokafka_member import Member
    Member(options).run()


main()
