/** Which texts a model was made for. A text that is refused may be shown to the model all the same. */

const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const EXPECTED = "an ISO date of the years 1000 to 9999 was expected, such as 1845-01-05";

/** Say why a text is no date, or nothing. */
export function dateFault(/** @type {string} */ text) {
  if (!text.trim()) return `The line is empty: ${EXPECTED}.`;
  const parts = /^([0-9]{4})-([0-9]{2})-([0-9]{2})$/.exec(text);
  if (!parts) return `‘${text.slice(0, 40)}’ ${formFault(text)}: ${EXPECTED}.`;
  const [year, month, day] = parts.slice(1).map(Number);
  if (year < 1000) return `‘${text}’ is of the year ${year}: ${EXPECTED}.`;
  if (month < 1 || month > 12) return `‘${text}’ has a month ${parts[2]}, but months go from 01 to 12: ${EXPECTED}.`;
  const last = new Date(Date.UTC(year, month, 0)).getUTCDate();
  return day >= 1 && day <= last ? "" : `‘${text}’ does not exist, ${MONTHS[month - 1]} ${year} has ${last} days: ${EXPECTED}.`;
}

function formFault(/** @type {string} */ text) {
  if (text.length > 40) return "is too long";
  if (text !== text.trim()) return "has white space around it";
  if (/^[0-9]{4}[^0-9][0-9]{2}[^0-9][0-9]{2}$/.test(text)) return `has ‘${text[4]}’ between its parts instead of ‘-’`;
  if (/^[0-9]+-[0-9]+-[0-9]+$/.test(text)) return `has ${text.split("-").map((part) => part.length).join("-")} digits instead of 4-2-2`;
  return "is not of the form YYYY-MM-DD";
}
