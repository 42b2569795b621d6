import os

OPENAI_API_KEY = os.environ["OPENAI_API_KEY"]  # no setting: code
