"""Clients of several libraries, a process each, that write down what they sent, were told and read (`diary`)."""
