FROM a
LABEL claw.describe=/torn.json
