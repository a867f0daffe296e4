"""Real processes that are killed, frozen, cut off and left without room, and clients whose diaries must add up."""
