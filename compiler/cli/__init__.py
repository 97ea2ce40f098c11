"""The command line. Argument errors come before anything heavy is imported; data goes to stdout, the rest to stderr."""
