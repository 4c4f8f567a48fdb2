"""The application: `Callboard` declares it, and `Application` serves it."""
